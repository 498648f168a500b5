"""A mixture as arrays and facts, for files: what it has beside Gaussians is named, so that no reader overlooks it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from .background import Background, Rows, Uniform
from .inflated import Inflated
from .selections.completeness import Lost
from .selections.contract import Selecting
from .selections.cuts import Cuts, Edge
from .tails import StudentT

FEATURES = ("background", "tails", "inflation", "selection")
"""Features of files that this version knows."""
BESIDE = "background."


class Saved(NamedTuple):
    """What a file holds of a mixture."""

    arrays: dict[str, np.ndarray]
    facts: dict[str, Any]
    features: list[str]


def saved(mixture: Any) -> Saved:
    """A mixture as arrays, facts that JSON can hold, and the features that a reader must know."""
    arrays = {"weights": mixture.weights, "means": mixture.means, "covariances": mixture.covariances}
    facts: dict[str, Any] = {"labels": mixture.labels, "units": mixture.units, "meta": dict(mixture.meta or {})}
    facts["structure"] = mixture.structure
    features = [] if mixture.tails is None else ["tails"]
    if mixture.tails is not None:
        facts["tails"] = {"nu": mixture.tails.nu, "fitted": mixture.tails.fitted}
    if mixture.inflation is not None:
        facts["inflation"] = mixture.inflation.as_json()
        features.append("inflation")
    if mixture.selection is not None:
        features.append("selection")
        facts["selection"] = _selection(mixture.selection)
    if mixture.background is None:
        return Saved(arrays, facts, features)
    inner = _background(mixture.background)
    arrays |= {BESIDE + name: array for name, array in inner.arrays.items()}
    facts["background"] = {**inner.facts, "weight": mixture.background_weight}
    return Saved(arrays, facts, [*features, "background"])


def _background(background: Any) -> Saved:
    if isinstance(background, Uniform):
        edges = {"low": np.array(background.low), "high": np.array(background.high)}
        return Saved(edges, {"kind": "uniform"}, [])
    if isinstance(background, Rows):
        return Saved({}, {"kind": "rows"}, [])
    inner = saved(background)
    return Saved(inner.arrays, {"kind": "mixture", "facts": inner.facts}, [])


def _selection(selection: Selecting) -> dict[str, Any]:
    """Cuts, or that there was a function, which a file cannot hold."""
    if isinstance(selection, Cuts):
        return {"kind": "cuts", "edges": [list(edge) for edge in selection.edges]}
    return {"kind": "function"}


def _restored_selection(told: Any) -> Selecting:
    return Cuts(tuple(_edge(*edge) for edge in told["edges"])) if told["kind"] == "cuts" else Lost()


def _edge(coordinate: Any, lower: Any, offset: Any, slope: Any) -> Edge:
    if type(coordinate) is not int or coordinate < 0:
        raise ValueError(f"a cut of coordinate {coordinate!r}")
    return Edge(coordinate, bool(lower), float(offset), float(slope))


def restored(make: Callable[..., Any], arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> Any:
    """The mixture of a file's arrays and facts; ``make`` is the class."""
    more: dict[str, Any] = {"tails": StudentT(**facts["tails"])} if "tails" in facts else {}
    if "inflation" in facts:
        more["inflation"] = Inflated.from_json(facts["inflation"])
    if "selection" in facts:
        more["selection"] = _restored_selection(facts["selection"])
    if "background" in facts:
        told = facts["background"]
        inside = {name.removeprefix(BESIDE): array for name, array in arrays.items() if name.startswith(BESIDE)}
        more |= {"background": _restored_background(make, inside, told), "background_weight": told["weight"]}
    names = {name: facts.get(name) for name in ("labels", "units", "meta")} | {
        "structure": facts.get("structure", "full")
    }
    made = make(arrays["weights"], arrays["means"], arrays["covariances"], **names, **more)
    _refuse_other_coordinates(made)
    return made


def _refuse_other_coordinates(mixture: Any) -> None:
    """Refuse cuts and factors of coordinates that the Gaussians do not have."""
    cut = mixture.selection.coordinates if isinstance(mixture.selection, Cuts) else []
    factors: Inflated | None = mixture.inflation
    by = None if factors is None or factors.grouping is None else factors.grouping.coordinate
    strange = any(not 0 <= a < mixture.d for a in (*cut, *([] if by is None else [by])))
    if strange or (factors is not None and not factors.projected and factors.p != mixture.d):
        raise ValueError(f"its selection or inflation is of other coordinates than its {mixture.d} dimensions")


def _restored_background(make: Callable[..., Any], arrays: dict[str, np.ndarray], told: Any) -> Background:
    if told["kind"] == "uniform":
        return Uniform(arrays["low"], arrays["high"])
    return Rows() if told["kind"] == "rows" else restored(make, arrays, told["facts"])
