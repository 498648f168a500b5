# The public names, and the room that each lives in. xdeconv/__init__.py reads this list, and so do type checkers.
from . import compat as compat
from . import plot as plot
from . import simulate as simulate
from .catalog import gaia as gaia
from .catalog import sky as sky
from .catalog._open import open as open
from .compat.sklearn import XDGMM as XDGMM
from .fitting import initial as initial
from .fitting._fit import FitResult as FitResult
from .fitting._fit import fit as fit
from .fitting.checkpoint import Checkpoint as Checkpoint
from .fitting.history import Callback as Callback
from .fitting.history import CSVLogger as CSVLogger
from .fitting.history import Epoch as Epoch
from .fitting.initial import Start as Start
from .kernels.options import Options as Options
from .methods import EM as EM
from .methods import SGD as SGD
from .methods import Decaying as Decaying
from .methods import Fixed as Fixed
from .methods import Stepped as Stepped
from .methods.prior import Prior as Prior
from .mixture._mixture import Mixture as Mixture
from .mixture._mixture import load as load
from .mixture.classifier import Classifier as Classifier
from .mixture.posterior import Posterior as Posterior
from .plot.explorer._explore import explore as explore
from .rows import data as data
from .rows.batch import Batch as Batch
from .rows.checks import NoNoiseWarning as NoNoiseWarning
from .search.moves import Moves as Moves
from .studies._bootstrap import Bootstrap as Bootstrap
from .studies._bootstrap import bootstrap as bootstrap
from .studies._select import Selection as Selection
from .studies._select import select as select

__version__: str
