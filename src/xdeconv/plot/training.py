"""How a fit went."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..fitting.history import Epoch, remembered
from ..mixture._mixture import Mixture
from .axes import Array, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def history(records: Mixture | Iterable[Epoch], ax: Axes | None = None, *, against: str = "epoch") -> Axes:
    """Log-likelihood per row against epochs or seconds, one line per restart; held-out rows are dashed.

    The first epochs, far below the others, may lie under the lower edge: it follows the later ones. Crosses mark passes
    after which components were split, merged or revived.

    Parameters
    ----------
    records : Mixture or iterable of Epoch
        The history of a FitResult, or a mixture that remembers it (without seconds).
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.
    against : str, default "epoch"
        "epoch" or "seconds".

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn on.
    """
    if against not in ("epoch", "seconds"):
        raise ValueError(f"against must be 'epoch' or 'seconds', got {against!r}")
    all_records = _records(records, against)
    ax = new_axes() if ax is None else ax
    drawn = [np.empty(0)]
    for restart in sorted({record.restart for record in all_records}):
        drawn += _start(ax, [record for record in all_records if record.restart == restart], against)
    ax.set_xlabel(against)
    ax.set_ylabel("log-likelihood per row")
    ax.ticklabel_format(axis="y", style="plain", useOffset=False)  # -3.4081, not -0.0001 beside a number that is missed
    if against == "epoch":
        ax.locator_params(axis="x", integer=True)
    if ax.lines:
        ax.legend()
        ax.set_ylim(*_view(drawn))
    return ax


def _records(records: Mixture | Iterable[Epoch], against: str) -> list[Epoch]:
    if not isinstance(records, Mixture):
        return list(records)
    if against == "seconds":
        raise ValueError("a mixture does not remember seconds: draw result.history, or against='epoch'")
    history = remembered(records.meta or {})
    if not history:
        raise ValueError("this mixture remembers no history: draw result.history, or fit again with this version")
    return list(history)


def _start(ax: Axes, mine: Sequence[Epoch], against: str) -> list[Array]:
    """The lines of one start, and their heights."""
    name = f"start {mine[0].restart + 1}"
    x, y = np.array([(getattr(record, against), record.loglik) for record in mine]).T
    (line,) = ax.plot(x, y, label=name)
    moved = np.array([bool(record.moved) for record in mine])
    if moved.any():
        ax.plot(x[moved], y[moved], "x", color=line.get_color(), ms=5, label=f"{name}, components moved")
    held_out = np.array([(at, r.validation) for at, r in zip(x, mine, strict=True) if r.validation is not None])
    if not len(held_out):
        return [y]
    ax.plot(*held_out.T, "--", color=line.get_color(), label=f"{name}, held out")
    return [y, held_out[:, 1]]


def _view(drawn: Sequence[Array]) -> tuple[float, float]:
    """Limits that hold the later nine tenths of every line, and what came before if it is not far below."""
    later = np.concatenate([y[len(y) // 10 :] for y in drawn])
    every = np.concatenate(drawn)
    low, high = float(np.nanmin(later)), float(np.nanmax(every))
    room = max(high - low, 1e-9 * max(abs(high), 1.0))
    return max(float(np.nanmin(every)), low - 0.5 * room) - 0.05 * room, high + 0.05 * room
