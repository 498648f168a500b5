"""Options that several commands share, and the words of the command line as arguments of xd.open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ..catalog.stream import CatalogSource


def read_toml(context: typer.Context, path: Path | None) -> Path | None:
    """Options of a TOML file become the command's defaults: its top level, and its table with the command's name."""
    if path is None:
        return None
    import tomllib

    try:
        found = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as problem:
        raise typer.BadParameter(f"cannot read {path}: {problem}") from problem
    except tomllib.TOMLDecodeError as problem:
        raise typer.BadParameter(f"{path} is no TOML: {problem}") from problem
    flat = {key: value for key, value in found.items() if not isinstance(value, Mapping)}
    flat |= found.get(context.info_name or "", {})
    known = {name.lstrip("-"): p.name for p in context.command.params for name in (*p.opts, p.name or "")}
    unknown = [key for key in flat if key not in known]
    if unknown:
        raise typer.BadParameter(f"{path}: {context.info_name} has no option {', '.join(unknown)}")
    context.default_map = {**(context.default_map or {}), **{str(known[k]): _plain(v) for k, v in flat.items()}}
    return path


def _plain(value: Any) -> Any:
    """Lists of names as the command line writes them; lists of NAME=VALUE stay lists."""
    if isinstance(value, list) and all(isinstance(v, str) and "=" not in v for v in value):
        return ",".join(value)
    return value


Config = Annotated[
    Path | None,
    typer.Option("--config", help="TOML file with options, which the command line overrides.",
                 callback=read_toml, is_eager=True),
]  # fmt: skip
Data = Annotated[list[str], typer.Argument(help="Files, globs, directories (HATS too) or a prepared store.")]
Model = Annotated[Path, typer.Argument(help="A model that `xdeconv fit` wrote.")]
Columns = Annotated[str | None, typer.Option("--columns", "-c", help="Features, separated by commas.")]
Where = Annotated[str | None, typer.Option(help='Use only rows where this holds, such as "ruwe < 1.4".')]
Errors = Annotated[
    list[str] | None,
    typer.Option("--error", help="FEATURE=COLUMN, =EXPRESSION, =NUMBER or =none: its standard deviation. Repeatable."),
]
Units = Annotated[list[str] | None, typer.Option("--unit", help="COLUMN=UNIT, such as ra_error=mas. Repeatable.")]
Derive = Annotated[
    list[str] | None,
    typer.Option(help='NAME=EXPRESSION of columns; "tangent:RA,DEC" makes xi, eta (degrees); "galactic" makes l, b, '
                 'pml, pmb; "rotation:POLE_RA,POLE_DEC,ZERO_RA,ZERO_DEC" makes phi1, phi2, pm_phi1, pm_phi2; '
                 '"velocities" makes U, V, W (km/s). Repeatable.'),
]  # fmt: skip
Correlation = Annotated[
    list[str] | None,
    typer.Option("--correlation", help="FEATURE,FEATURE=COLUMN or =NUMBER: of their errors. Repeatable."),
]
ErrorPattern = Annotated[
    str | None, typer.Option("--error-pattern", help="What error columns are called. Default: {name}_error.")
]
CorrelationPattern = Annotated[
    str | None, typer.Option("--correlation-pattern", help="What correlations are called. Default: {a}_{b}_corr.")
]
LogPrior = Annotated[
    str | None, typer.Option("--log-prior", help="Columns of log-priors, one per component, separated by commas.")
]
Offset = Annotated[
    list[str] | None, typer.Option(help="COLUMN=NUMBER or EXPRESSION to subtract: a zero point. Repeatable.")
]
Inflate = Annotated[
    list[str] | None, typer.Option(help="COLUMN=NUMBER or EXPRESSION to multiply its error by. Repeatable.")
]
Preset = Annotated[str | None, typer.Option(help="paper-2019 or paper-2019-code: that paper's columns and errors.")]
Weight = Annotated[str | None, typer.Option(help="Column of row weights.")]
BadRows = Annotated[str, typer.Option(help="refuse or drop rows with impossible errors, such as negative ones.")]
SkipBadFiles = Annotated[bool, typer.Option("--skip-bad-files", help="Go on when a file is damaged, and count them.")]
Keep = Annotated[
    str | None, typer.Option(help="Columns to pass through, separated by commas; * for all. Default: the identifiers.")
]
Output = Annotated[Path, typer.Option("--output", "-o", help="File to write: .parquet, .arrow or .csv.")]


def pairs(items: Sequence[str] | None, option: str) -> dict[str, str] | None:
    """NAME=VALUE words as a dict."""
    for item in items or ():
        if "=" not in item:
            raise typer.BadParameter(f"{item!r} is not NAME=VALUE", param_hint=option)
    return dict(item.split("=", 1) for item in items) if items else None


def value(text: str) -> Any:
    """A number where the text is one, None for none, else the text."""
    if text.strip().lower() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        return text


def opening(
    columns: str | None, error: Sequence[str] | None, unit: Sequence[str] | None, derive: Sequence[str] | None,
    offset: Sequence[str] | None, inflate: Sequence[str] | None, preset: str | None, weight: str | None,
    correlation: Sequence[str] | None = None, error_pattern: str | None = None,
    correlation_pattern: str | None = None, log_prior: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Arguments of xd.open, as JSON, so that a model can remember how its rows are read."""
    named = {name: {k: value(v) for k, v in (pairs(items, f"--{name}") or {}).items()}
             for name, items in (("error", error), ("offset", offset), ("inflate", inflate),
                                 ("correlation", correlation))}  # fmt: skip
    found: dict[str, Any] = {
        "columns": [c.strip() for c in columns.split(",")] if columns else None,
        "unit": pairs(unit, "--unit"),
        "derive": [dict([d.split("=", 1)]) if "=" in d else d for d in derive] if derive else None,
        "preset": preset,
        "weight": weight,
        "error_pattern": error_pattern,
        "correlation_pattern": correlation_pattern,
        "log_prior": [c.strip() for c in log_prior.split(",")] if log_prior else None,
        **named,
    }
    return {name: given for name, given in found.items() if given}


def open_data(
    data: Sequence[str], arguments: Mapping[str, Any], *, where: str | None = None, bad_rows: str = "refuse",
    skip_bad_files: bool = False, memory: bool | None = None,
) -> CatalogSource:  # fmt: skip
    """The source that a command reads."""
    from ..catalog._open import open_source as open_catalog

    if bad_rows not in ("refuse", "drop"):
        raise typer.BadParameter(f"{bad_rows!r} is neither refuse nor drop", param_hint="--bad-rows")
    return open_catalog(
        list(data), where=where, bad_rows=bad_rows, skip_bad_files=skip_bad_files, memory=memory, **arguments
    )  # fmt: skip


def open_for(model: Any, data: Sequence[str], arguments: Mapping[str, Any], **options: Any) -> CatalogSource:
    """The source in the coordinates of a model: as its own rows were read, unless told otherwise."""
    from ..catalog.remembering import arguments as read_as

    remembered = dict((model.meta or {}).get("open", {}))
    columns = arguments.get("columns") or remembered.get("columns") or list(model.labels or ())
    if not columns and "preset" not in {**remembered, **arguments}:
        raise ValueError("the model has no labels: name its columns with --columns")
    chosen = {**read_as(remembered, columns), **arguments}
    source = open_data(data, chosen, **options)
    if source.dim != model.d or (model.labels and source.labels != model.labels):
        raise ValueError(f"the model is of {list(model.labels or ())} and the rows of {list(source.labels)}")
    _refuse_other_units(model, source)
    return source


def _refuse_other_units(model: Any, source: Any) -> None:
    for label, ours, theirs in zip(source.labels, model.units or (), source.units or (), strict=False):
        if ours and theirs and ours != theirs:
            raise ValueError(f"{label} is in {ours!r} in the model and in {theirs!r} in the rows")
