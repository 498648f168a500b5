"""What a table remembers of how its rows are to be read: arguments of xd.open, as JSON, in a store's manifest."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .finding import Choices, as_transforms
from .readers import ReadError, Table

# What may be remembered, and what it must be.
TEXTS = ("weight", "error_pattern", "correlation_pattern")
LISTS = ("columns", "log_prior")
TABLES = ("error", "correlation", "unit", "offset", "inflate", "fill")
KEYS = (*TEXTS, *LISTS, *TABLES, "derive", "cos_dec")


def memorable(said: Mapping[str, Any]) -> dict[str, Any]:
    """What was said of how to read a table, as JSON; refused where it has Python functions in it."""
    found = {name: value for name, value in said.items() if value is not None}
    if "correlation" in found:
        pairs = found["correlation"].items()
        found["correlation"] = {pair if isinstance(pair, str) else ",".join(pair): value for pair, value in pairs}
    try:
        return json.loads(json.dumps({name: list(v) if name in LISTS else v for name, v in found.items()}))
    except (TypeError, ValueError) as problem:
        raise ValueError(f"a store cannot remember how its rows are read: {problem}. Functions and transforms must be "
                         "given by their names") from problem  # fmt: skip


def remembered(table: Table, given: Mapping[str, Any]) -> dict[str, Any]:
    """What was said now, completed by what the table remembers of its features."""
    said = {name: value for name, value in given.items() if value is not None}
    known = dict(table.reading)
    if not known:
        return said
    _check(known, table)
    if "columns" in said:
        known = _of_features(known, said, table)
    tables = {name: {**known[name], **said[name]} for name in TABLES if name in known and name in said}
    return {**known, **said, **tables}


def _check(known: Mapping[str, Any], table: Table) -> None:
    """Refuse a manifest that says anything else than it may."""
    kinds = {**dict.fromkeys(TEXTS, str), **dict.fromkeys(LISTS, list), **dict.fromkeys(TABLES, dict), "cos_dec": bool}
    for name, value in known.items():
        if name not in KEYS or not isinstance(value, kinds.get(name, (str, dict, list))):
            raise ReadError(f"{table.name} does not say how its rows are read: {name} is {str(value)[:40]!r}")


def _of_features(known: Mapping[str, Any], said: Mapping[str, Any], table: Table) -> dict[str, Any]:
    """The part of what is remembered that the features asked for use."""
    features = tuple(said["columns"])
    derive = said.get("derive") or _derived(known.get("derive"), features, table.columns)
    used = {*Choices(features, derive=as_transforms(derive, table.columns)).raw, *features}
    kept = {name: {key: value for key, value in known.get(name, {}).items() if set(key.split(",")) <= used}
            for name in TABLES if name not in ("unit",)}  # fmt: skip
    unit = {name: value for name, value in known.get("unit", {}).items() if name in table.columns or name in used}
    rest = {name: known[name] for name in (*TEXTS, "log_prior", "cos_dec") if name in known}
    return {**rest, **kept, "unit": unit, "derive": derive}


def _derived(derive: Any, features: Sequence[str], columns: Sequence[str]) -> list[Any]:
    """The transforms that make one of the features, as they were said."""
    if isinstance(derive, Mapping):
        return [{name: text} for name, text in derive.items() if name in features]
    if isinstance(derive, list):
        return [part for each in derive for part in _derived(each, features, columns)]
    made = {name for t in as_transforms(derive, columns) for name in t.outputs}
    return [derive] if made & set(features) else []
