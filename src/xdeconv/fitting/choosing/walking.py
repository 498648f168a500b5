"""Walking down in the number of components: each mixture is made of the next larger one, by merging what costs least.

Fewer components from many good ones are as good as a fit of their own (the log-likelihoods of plain fits and of such a
walk differ by less than a nat in most cases, either way), and all of a walk costs about half of its largest fit.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

from ...kernels.parameters import Parameters
from ...methods import as_structure
from ...methods.em import all_weights
from ...methods.prior import Prior
from ...mixture._mixture import Mixture
from ...rows.data import Source
from ...search.aim import Aim
from ...search.pruning import pruned
from ...system.threads import small_algebra
from ..beside.background import beside
from ..beside.completed import completed
from ..frame import Frame

POOL_ROWS, ROWS_EACH = 1 << 13, 150  # rows that say which components to merge, at least in all and per component
MOST = 64  # components that are tried where nobody says how many
EACH = 5  # rows per free number of a component, at least, of the largest mixture that is tried
EVERY = 8  # components up to which every number is a rung
RATIO = 1.33  # of one rung to the next, above
NEAR = 0.08  # of the choice: neighbours that differ by less are near enough


def smaller(mixture: Mixture, k: int, source: Source, seed: int, prior: Prior | None = None) -> Mixture:
    """A mixture of k components made of a larger one, by merging and removing those that cost least.

    Parameters
    ----------
    mixture : Mixture
        Of more than k components.
    k : int
        How many are to be left.
    source : Source
        The rows that it was fitted to.
    seed : int
        Which of many rows judge.
    prior : Prior, optional
        That of the fit.

    Returns
    -------
    Mixture
    """
    frame = Frame.around(mixture)
    size = max(POOL_ROWS, ROWS_EACH * mixture.k)
    rows = mixture.widened(beside(source, mixture.background).sample(size, seed).to("cpu", torch.float64))
    rows = rows.standardized(frame.shift, frame.scale)
    framed, scale = frame.into(mixture), frame.scale.tolist()
    own = None if prior is None else prior.standardized(scale).scaled(rows.n / max(source.rows, 1))
    if mixture.selection is not None:  # rows that were kept have no use for what lies beyond a cut
        rows = completed(rows, framed, np.random.default_rng([seed, k])) or rows
    structure = as_structure(mixture.structure).standardized(scale)
    aim = Aim(own, structure, tails=None if mixture.tails is None else mixture.tails.held())
    with small_algebra():
        left = pruned(Parameters(*framed.tensors()), k, rows, aim)
    weights = all_weights(left.log_weights, mixture.background is not None)
    fewer = frame.out_of(Mixture.from_tensors(weights, left.means, left.covariances))
    names = ("labels", "units", "structure", "background", "tails", "inflation", "selection")
    return fewer.with_(**{name: getattr(mixture, name) for name in names})


def ladder(rows: int, d: int) -> list[int]:
    """Numbers of components to try first where nobody says which: every small one, then in steps of a quarter.

    >>> ladder(400, 2)
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 13]
    >>> ladder(10**6, 2)[-6:]
    [15, 20, 27, 36, 48, 64]
    """
    top = max(1, min(MOST, rows // (EACH * (1 + d + d * (d + 1) // 2))))
    rungs = [top]
    while rungs[-1] > EVERY + 1:
        rungs.append(max(EVERY, int(rungs[-1] / RATIO)))
    return [*range(1, rungs[-1]), *reversed(rungs)]


def between(tried: Iterable[int], chosen: int) -> list[int]:
    """The numbers not tried yet that lie halfway between a choice and its neighbours; none that differ by little.

    >>> between([1, 2, 4, 8], 4)
    [3, 6]
    >>> between([56, 60, 64], 60)
    []
    """
    known = sorted(tried)
    low = max((k for k in known if k < chosen), default=chosen)
    high = min((k for k in known if k > chosen), default=chosen)
    halfway = {(low + chosen + 1) // 2: chosen - low, (chosen + high) // 2: high - chosen}
    return sorted(k for k, gap in halfway.items() if k not in known and gap > NEAR * chosen)
