"""Rows that a command reads: as it is told, and as a model remembers that its own were read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import parsing
from .app import say
from .options import Rows

if TYPE_CHECKING:
    from ..catalog.stream import CatalogSource


def opening(
    columns: str | None, error: Sequence[str] | None, unit: Sequence[str] | None, *,
    derive: Sequence[str] | None = None, offset: Sequence[str] | None = None, inflate: Sequence[str] | None = None,
    preset: str | None = None, weight: str | None = None, correlation: Sequence[str] | None = None,
    error_pattern: str | None = None, correlation_pattern: str | None = None, log_prior: str | None = None,
    missing: Sequence[str] | None = None, cos_dec: bool | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Arguments of xd.open, as JSON, so that a model can remember how its rows are read."""
    named = {name: {k: parsing.value(v) for k, v in (parsing.one_each(items, f"--{name}") or {}).items()}
             for name, items in (("error", error), ("offset", offset), ("inflate", inflate),
                                 ("correlation", correlation))}  # fmt: skip
    said: dict[str, Any] = {
        "columns": parsing.listed(columns) or None,
        "unit": parsing.pairs(unit, "--unit"),
        "derive": [dict([d.split("=", 1)]) if "=" in d else d for d in derive] if derive else None,
        "preset": preset,
        "weight": weight,
        "error_pattern": error_pattern,
        "correlation_pattern": correlation_pattern,
        "log_prior": parsing.listed(log_prior) or None,
        "missing": parsing.numbers(missing, "--missing"),
        **named,
    }
    unsaid: dict[str, Any] = {"log_prior": []} if log_prior == "none" else {}  # whatever a model or a store remembers
    unsaid |= {} if cos_dec is None else {"cos_dec": cos_dec}
    return {name: given for name, given in said.items() if given} | unsaid


def open_data(
    data: Sequence[str], arguments: Mapping[str, Any], *, where: str | None = None, bad_rows: Rows = "refuse",
    skip_bad_files: bool = False, memory: bool | None = None,
) -> CatalogSource:  # fmt: skip
    """The source that a command reads; a feature without noise must be said to have none."""
    from ..catalog._open import open_source

    source = open_source(
        list(data), where=where, bad_rows=bad_rows, skip_bad_files=skip_bad_files, memory=memory, **arguments
    )
    refuse_no_noise(source.unexplained, source.table.columns)
    return source


def refuse_no_noise(names: Sequence[str], columns: Collection[str] = ()) -> None:
    """Refuse features for which no error was found and of which nobody said that their values are exact.

    Of ``columns`` those that look like their errors are offered.
    """
    if names:
        from ..catalog.likely import offered

        example, likely = names[0], offered(names, columns)[1]
        raise ValueError(
            f"no errors were found for {', '.join(names)}: name them, such as "
            + (likely or f"--error {example}=COLUMN or =NUMBER")
            + f", or say that its values are exact with --error {example}=none"
        )


def open_for(model: Any, data: Sequence[str], arguments: Mapping[str, Any], **options: Any) -> CatalogSource:
    """The source in the coordinates of a model: as its own rows were read, unless told otherwise."""
    from ..mixture.asking import UNUSED, Asked
    from ..rows.units import refuse_others

    own, asked = remembered(model), Asked.of(model)
    if not (arguments.get("columns") or own.get("columns") or model.labels or "preset" in {**own, **arguments}):
        raise ValueError("the model has no labels: name its columns with --columns")
    source, unused = asked.opened(list(data), arguments, **options)
    exact = [name for name in asked.exact(source.labels) if name not in arguments.get("error", {})]
    refuse_no_noise([name for name in source.unexplained if name not in exact], source.table.columns)
    if unused:
        say(f"note: {UNUSED.format(', '.join(unused))}")
    if source.dim != model.d or (model.labels and source.labels != model.labels):
        raise ValueError(f"the model is of {list(model.labels or ())} and the rows of {list(source.labels)}")
    refuse_others(source.units, model.units, source.labels)
    return source


def open_as_fitted(
    model: Any, data: Sequence[str], arguments: Mapping[str, Any], where: str | None, **options: Any
) -> CatalogSource:
    """The same of the rows of the fit: with its weights and its condition, unless told otherwise."""
    weight = remembered(model).get("weight")
    arguments = arguments if weight is None else {"weight": weight, **arguments}
    return open_for(model, data, arguments, where=where or _fitted_where(model), **options)


def _fitted_where(model: Any) -> str | None:
    """The condition on the rows of the fit."""
    where = (model.meta or {}).get("where")
    if not isinstance(where, (str, type(None))):
        raise ValueError(f"the model is damaged: its rows were chosen where {str(where)[:80]!r}")
    if where is not None:
        say(f"note: rows where {where}, as in the fit")
    return where


def remembered(model: Any) -> dict[str, Any]:
    """How a model's own rows were read."""
    from ..catalog.remembering import checked

    return checked((model.meta or {}).get("open") or {}, "the model")


def device_for(device: str | None, source: CatalogSource, k: int) -> str:
    """Where questions about rows are worked out: as was said, or a GPU where there is one and much to do."""
    from ..mixture.computing import worthwhile

    return str(worthwhile(device, lambda: source.rows, k))
