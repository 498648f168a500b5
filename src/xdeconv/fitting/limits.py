"""What no model can tell from some rows: notes on components that too few rows, or too noisy ones, stand behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ..mixture._mixture import Mixture
from ..mixture.coordinates import names_or_numbers
from ..rows.data import ArraySource, Source
from .weak_prior import typical_noise

ENOUGH = 10  # rows per free number
FAR = 3.0  # noise over the width of all true values
LOST = 0.5  # expected relative error of a variance: its interval of 95 % reaches zero
SHOWN = 5  # components that a note names
NOISE_ROWS = 1 << 14  # rows that say how wide the noise is


def cannot_tell(mixture: Mixture, source: Source, held: np.ndarray | None = None) -> list[str]:
    """Notes for a fit, of at most one line per kind.

    Parameters
    ----------
    mixture : Mixture
        The fit, in the user's units.
    source : Source
        The rows that it was fitted to.
    held : array (k,), optional
        How many rows stand behind each component; by default those of its share, as where nothing was selected.

    Returns
    -------
    list of str

    Examples
    --------
    >>> from xdeconv.rows.batch import Batch
    >>> rows = ArraySource(Batch.from_arrays(np.zeros((40, 1))))
    >>> cannot_tell(Mixture([1.0], [[0.0]], [[[1.0]]]), rows)
    []
    >>> cannot_tell(Mixture([0.9, 0.1], [[0.0], [5.0]], [[[1.0]], [[1.0]]]), rows)[0]
    '40 rows are few for the 5 free numbers of 2 components: xd.select finds how many components they support'
    """
    held = mixture.shares[: mixture.k] * source.rows if held is None else held
    return [*_few_rows(mixture, source.rows, held), *_wide_noise(mixture, source, held)]


def _few_rows(mixture: Mixture, rows: int, held: np.ndarray) -> Iterator[str]:
    d, free = mixture.d, mixture.n_parameters
    if rows < ENOUGH * (free + 1):
        some = "1 row is" if rows == 1 else f"{rows:,} rows are"
        yield (f"{some} few for the {free} free numbers of {mixture.k} component{'s' * (mixture.k > 1)}: "
               "xd.select finds how many components they support")  # fmt: skip
    thin = np.flatnonzero(held < 2 * (d + 1))
    if len(thin):
        yield f"{_list(thin)} rest{'s' * (len(thin) == 1)} on fewer than {2 * (d + 1)} rows"


def _wide_noise(mixture: Mixture, source: Source, held: np.ndarray) -> Iterator[str]:
    if not isinstance(source, ArraySource) or source.batch.noise is None or source.batch.projection is not None:
        return
    noise = typical_noise(source.sample(NOISE_ROWS, 0))
    names = names_or_numbers(mixture.labels, mixture.d)
    whole = np.diag(mixture.covariance())
    V = np.einsum("kaa->ka", mixture.covariances)
    relative = np.sqrt(2 / np.maximum(held, 1.0))[:, None] * (1 + noise / np.maximum(V, 1e-300))
    ratio = np.sqrt(noise / np.maximum(whole, 1e-300))
    far = np.flatnonzero(ratio > FAR)
    if len(far):
        times = ", ".join(f"{ratio[a]:.1f}" for a in far)
        yield f"the noise of {_named(names, far)} is {times} times as wide as its true values: little is left to see"
    lost = (relative > LOST) & (noise > V)
    groups = {tuple(np.flatnonzero(column)): np.flatnonzero((lost == column[:, None]).all(0)) for column in lost.T}
    hidden = [f"{_list(np.array(own))} in {_named(names, where)}" for own, where in groups.items() if own]
    if hidden:
        yield f"noise hides the width of {'; of '.join(hidden)}: xd.errors tells how well it is known"


def _named(names: Sequence[str], some: np.ndarray) -> str:
    return ", ".join(names[a] for a in some)


def _list(components: np.ndarray) -> str:
    """Components by number, the first few."""
    shown = ", ".join(str(j) for j in components[:SHOWN])
    more = f" and {len(components) - SHOWN} more" if len(components) > SHOWN else ""
    return f"component{'s' * (len(components) > 1)} {shown}{more}"
