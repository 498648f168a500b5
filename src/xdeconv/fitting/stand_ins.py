"""Values that look as if they stood for missing ones, such as -999: several rows have one, far from all others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ..rows.checks import named
from ..rows.data import Source

LOOKED_AT = 1 << 17  # rows
REPEATED = 3
FEWEST = 10  # other values, without which there is no saying what is far
Array = np.ndarray


def describe_stand_ins(source: Source, labels: Sequence[str] | None) -> list[str]:
    """One line per value that may mean that there is none."""
    rows = source.sample(LOOKED_AT, 0)
    if rows.projection is not None:
        return []
    some = f"of {rows.n:,} rows" + (" looked at" if rows.n < source.rows else "")
    return [
        f"{value:.7g} is the value of {named(labels, a)} in {count:,} {some}, and lies further from all others than "
        "these from each other: if it means that there is none, make it NaN, or say missing= of xd.open (--missing)"
        for a, values in enumerate(rows.x.double().cpu().numpy())
        for value, count in stand_ins(values)
    ]


def stand_ins(values: Array) -> Iterator[tuple[float, int]]:
    """The least and the largest value, with their counts, where they repeat and lie apart from all others.

    >>> list(stand_ins(np.array([-999.0] * 4 + list(range(20)))))
    [(-999.0, 4)]
    >>> list(stand_ins(np.array([0.0] * 4 + list(range(20)))))
    []
    """
    values = values[np.isfinite(values)]
    ends = {end: int((values == end).sum()) for end in (values.min(), values.max())} if len(values) else {}
    ends = {float(end): count for end, count in ends.items() if count >= REPEATED}
    if not ends:
        return
    others, counts = np.unique(values[~np.isin(values, list(ends))], return_counts=True)
    if len(others) < FEWEST:
        return
    for end, count in ends.items():
        if np.abs(others - end).min() > np.ptp(others) and count > counts.max():
            yield end, count
