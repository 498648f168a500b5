"""Learning from sums: each method is frozen settings, an explicit state, and one update.

A method sees :class:`xdeconv.kernels.stats.Stats` and never a row: it imports neither kernels nor rows.
"""

from .accelerated import Accelerated
from .averaged import Averaged
from .contract import Method, State, described
from .em import EM
from .fixed import Fixed
from .prior import Prior
from .schedule import Decaying, Schedule, Stepped, suited_batch, suited_step
from .sgd import SGD
from .structures import LowRank, Structure, as_structure

__all__ = [
    "EM",
    "SGD",
    "Accelerated",
    "Averaged",
    "Decaying",
    "Fixed",
    "LowRank",
    "Method",
    "Prior",
    "Schedule",
    "State",
    "Stepped",
    "Structure",
    "as_structure",
    "described",
    "suited_batch",
    "suited_step",
]
