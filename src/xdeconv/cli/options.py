"""Options that several commands share, and the words of the command line as arguments of xd.open."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from .app import say
from .config import Config

if TYPE_CHECKING:
    from ..catalog.stream import CatalogSource
    from ..methods import EM, Fixed

__all__ = ["Config"]

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
    typer.Option("--correlation", help="FEATURE,FEATURE=COLUMN, =NUMBER or =none: of their errors. Repeatable."),
]
ErrorPattern = Annotated[
    str | None, typer.Option("--error-pattern", help="What error columns are called. Default: {name}_error.")
]
CorrelationPattern = Annotated[
    str | None, typer.Option("--correlation-pattern", help="What correlations are called. Default: {a}_{b}_corr.")
]
LogPrior = Annotated[
    str | None,
    typer.Option("--log-prior", help="Columns of log-priors, one per component, separated by commas; none for none."),
]
Background = Annotated[
    str | None,
    typer.Option(help="What else makes rows: COLUMN=LOW:HIGH,... of every column, or a model to hold fixed."),
]
Tails = Annotated[str | None, typer.Option(help="Tails of Student's t instead of Gaussian ones: its nu, or fit.")]
Inflation = Annotated[
    str | None,
    typer.Option(
        help="Fit factors on errors: all, or words of=COLUMN,... by=COLUMN or by=COLUMN:EDGE,EDGE,... jitter=GROUP,..."
    ),
]
Selection = Annotated[
    list[str] | None,
    typer.Option(help="How rows were kept: a cut that made the table, as 'parallax_over_error > 5'. Repeatable."),
]
Offset = Annotated[
    list[str] | None, typer.Option(help="COLUMN=NUMBER or EXPRESSION to subtract: a zero point. Repeatable.")
]
Inflate = Annotated[
    list[str] | None, typer.Option(help="COLUMN=NUMBER or EXPRESSION to multiply its error by. Repeatable.")
]
Missing = Annotated[
    list[str] | None, typer.Option(help="COLUMN=NUMBER that stands for a missing value, such as -999. Repeatable.")
]
CosDec = Annotated[
    bool | None,
    typer.Option("--cos-dec/--no-cos-dec", help="Whether an error of ra is one of ra cos dec. Default: it is."),
]
Preset = Annotated[
    Literal["paper-2019", "paper-2019-code"] | None, typer.Option(help="That paper's columns and errors.")
]
Covariance = Annotated[
    str, typer.Option(help="Covariances of components: full, tied, diagonal, spherical or low-rank:R.")
]
Weight = Annotated[str | None, typer.Option(help="Column of row weights.")]
Rows = Literal["refuse", "drop"]
BadRows = Annotated[Rows, typer.Option(help="What to do with rows of impossible errors, such as negative ones.")]
SkipBadFiles = Annotated[bool, typer.Option("--skip-bad-files", help="Leave out damaged files, and count them.")]
Keep = Annotated[
    str | None, typer.Option(help="Columns to pass through, separated by commas; * for all. Default: the identifiers.")
]
Output = Annotated[Path, typer.Option("--output", "-o", help="File to write: .parquet, .arrow or .csv.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite a file that xdeconv did not write.")]
Device = Annotated[Literal["cpu", "cuda"] | None, typer.Option(help="Default: cuda where there is one.")]
Number = Annotated[Literal["float32", "float64"] | None, typer.Option(help="Default: by device.")]
Epochs = Annotated[int | None, typer.Option(help="At most so many passes over the rows.", min=1)]
Tolerance = Annotated[
    float, typer.Option(help="Stop when the fit expects to gain less than this many nats, over all rows.", min=0)
]
PriorWidth = Annotated[
    float, typer.Option(help="w of the prior on covariances, a variance in the data's units.", min=0)
]
Seed = Annotated[int, typer.Option(help="Same seed, same result.", min=0)]


def device_for(device: str | None, source: CatalogSource, k: int) -> str:
    """Where questions about rows are worked out: as was said, or a GPU where there is one and much to do."""
    from ..mixture.computing import worthwhile

    return str(worthwhile(device, lambda: source.rows, k))


def pairs(items: Sequence[str] | None, option: str) -> dict[str, str] | None:
    """NAME=VALUE words as a dict."""
    found: dict[str, str] = {}
    for item in items or ():
        name, sign, text = item.partition("=")
        if not sign or name.strip() in found:
            wrong = f"{name.strip()!r} is given twice" if sign else f"{item!r} is not NAME=VALUE"
            raise typer.BadParameter(wrong, param_hint=option)
        found[name.strip()] = text
    return found or None


def _one_each(items: Sequence[str] | None, option: str) -> dict[str, str] | None:
    """NAME=EXPRESSION words as a dict; several in one word are refused, since expressions have commas of their own."""
    for item in items or ():
        name, _, text = item.partition("=")
        if second := re.search(r",\s*(\w+)=(?!=)", text):
            said = f"{item!r} is two of them: say {option} once for {name.strip()} and once for {second[1]}"
            raise typer.BadParameter(said, param_hint=option)
    return pairs(items, option)


def numbers(items: Sequence[str] | None, option: str) -> dict[str, float]:
    """NAME=NUMBER words as a dict."""
    numbers = {}
    for name, text in (pairs(items, option) or {}).items():
        try:
            numbers[name.strip()] = float(text)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not a number for {name}", param_hint=option) from None
    return numbers


def value(text: str) -> Any:
    """A number where the text is one, None for none, else the text."""
    if text.strip().lower() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        return text


def listed(words: str | None) -> list[str]:
    """Words separated by commas."""
    return [word.strip() for word in (words or "").split(",") if word.strip()]


def opening(
    columns: str | None, error: Sequence[str] | None, unit: Sequence[str] | None, *,
    derive: Sequence[str] | None = None, offset: Sequence[str] | None = None, inflate: Sequence[str] | None = None,
    preset: str | None = None, weight: str | None = None, correlation: Sequence[str] | None = None,
    error_pattern: str | None = None, correlation_pattern: str | None = None, log_prior: str | None = None,
    missing: Sequence[str] | None = None, cos_dec: bool | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Arguments of xd.open, as JSON, so that a model can remember how its rows are read."""
    named = {name: {k: value(v) for k, v in (_one_each(items, f"--{name}") or {}).items()}
             for name, items in (("error", error), ("offset", offset), ("inflate", inflate),
                                 ("correlation", correlation))}  # fmt: skip
    said: dict[str, Any] = {
        "columns": listed(columns) or None,
        "unit": pairs(unit, "--unit"),
        "derive": [dict([d.split("=", 1)]) if "=" in d else d for d in derive] if derive else None,
        "preset": preset,
        "weight": weight,
        "error_pattern": error_pattern,
        "correlation_pattern": correlation_pattern,
        "log_prior": listed(log_prior) or None,
        "missing": numbers(missing, "--missing"),
        **named,
    }
    unsaid: dict[str, Any] = {"log_prior": []} if log_prior == "none" else {}  # whatever a model or a store remembers
    unsaid |= {} if cos_dec is None else {"cos_dec": cos_dec}
    return {name: given for name, given in said.items() if given} | unsaid


def open_data(
    data: Sequence[str], arguments: Mapping[str, Any], *, where: str | None = None, bad_rows: Rows = "refuse",
    skip_bad_files: bool = False, memory: bool | None = None, exact: Collection[str] = (),
) -> CatalogSource:  # fmt: skip
    """The source that a command reads; a feature without noise must be said, or known, to be ``exact``."""
    from ..catalog._open import open_source

    source = open_source(
        list(data), where=where, bad_rows=bad_rows, skip_bad_files=skip_bad_files, memory=memory, **arguments
    )
    refuse_no_noise([name for name in source.unexplained if name not in exact], source.table.columns)
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
    own = remembered(model)
    columns = arguments.get("columns") or own.get("columns") or list(model.labels or ())
    if not columns and "preset" not in {**own, **arguments}:
        raise ValueError("the model has no labels: name its columns with --columns")
    known = _read_as(own, columns)
    merged = {name: {**known.get(name, {}), **given} for name, given in arguments.items() if isinstance(given, dict)}
    chosen = {**known, **arguments, **merged}
    exact = [name for name in _exact(model, columns) if name not in arguments.get("error", {})]
    source = open_data(data, chosen, exact=exact, **options)
    unused = _unused_errors(source, exact)
    if unused:
        say(f"note: the rows have errors of {', '.join(unused)}, which are not used: the model was fitted without them")
        chosen["error"] = {**chosen.get("error", {}), **dict.fromkeys(unused)}
        source = open_data(data, chosen, exact=exact, **options)
    if source.dim != model.d or (model.labels and source.labels != model.labels):
        raise ValueError(f"the model is of {list(model.labels or ())} and the rows of {list(source.labels)}")
    _refuse_other_units(model, source)
    return source


def _exact(model: Any, columns: Sequence[str]) -> list[str]:
    """The features that had no errors in the fit of a model, where it remembers that."""
    known = (model.meta or {}).get("errors")
    known = known if isinstance(known, (list, tuple)) and len(known) == len(columns) else ()
    return [name for name, noisy in zip(columns, known, strict=False) if noisy is False]


def _unused_errors(source: CatalogSource, exact: Sequence[str]) -> list[str]:
    """The raw columns whose errors would give noise to features that had none in the fit."""
    from ..catalog.remembering import noisy

    errors = noisy(source.recipe)
    return list(dict.fromkeys(raw for name in exact for raw in errors[name]))


def remembered(model: Any) -> dict[str, Any]:
    """How a model's own rows were read."""
    from ..catalog.remembering import checked

    return checked((model.meta or {}).get("open") or {}, "the model")


def _read_as(known: Mapping[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    """Arguments of xd.open from what a model remembers."""
    from ..catalog.remembering import arguments

    reading = arguments(known, columns)
    return reading if columns else {name: given for name, given in reading.items() if name != "columns"}


def _refuse_other_units(model: Any, source: Any) -> None:
    for label, ours, theirs in zip(source.labels, model.units or (), source.units or (), strict=False):
        if ours and theirs and ours != theirs:
            raise ValueError(f"{label} is in {ours!r} in the model and in {theirs!r} in the rows")


def model_of(background: str | None) -> str | None:
    """The file that --background names, where it names one."""
    return background if background and os.path.isfile(background) else None


def background(text: str | None, labels: Sequence[str]) -> Any:
    """The background that --background names: a box of the columns, or a model."""
    from ..mixture._mixture import load
    from ..mixture.background import Uniform

    if text is None or model_of(text):
        return None if text is None else load(text)
    if "=" not in text:
        box = ",".join(f"{name}=LOW:HIGH" for name in labels)
        wrong = f"there is no file {text}: give a model's file, or a box such as {box}"
        raise typer.BadParameter(wrong, param_hint="--background")
    sides = pairs(text.split(","), "--background") or {}
    unknown, missing = [n for n in sides if n not in labels], [n for n in labels if n not in sides]
    if unknown or missing:
        wrong = f"{unknown[0]!r} is not a column of the fit" if unknown else f"{missing[0]!r} has no LOW:HIGH"
        raise typer.BadParameter(wrong, param_hint="--background")
    try:
        ends = [_ends(name, sides[name]) for name in labels]
        return Uniform(*zip(*ends, strict=True))
    except ValueError as problem:
        raise typer.BadParameter(str(problem), param_hint="--background") from None


def _ends(name: str, text: str) -> tuple[float, float]:
    """LOW:HIGH of a column."""
    try:
        low, high = (float(end) for end in text.split(":"))
    except ValueError:
        raise ValueError(f"{name}={text} is not COLUMN=LOW:HIGH with two numbers") from None
    if not low < high:
        raise ValueError(f"{name}={text} must have LOW < HIGH")
    return low, high


def inflation(text: str | None) -> Any:
    """The factors on errors that --inflation names.

    >>> inflation("of=parallax,pmra by=phot_g_mean_mag:13,15")
    Inflation(by='phot_g_mean_mag', bins=(13.0, 15.0), of=('parallax', 'pmra'), jitter=())
    """
    from ..mixture.inflation import Inflation

    if text is None or text == "all":
        return None if text is None else Inflation()
    said = pairs(text.split(), "--inflation") or {}
    unknown = [name for name in said if name not in ("of", "by", "jitter")]
    if unknown:
        raise typer.BadParameter(f"{unknown[0]!r} is none of of, by, jitter", param_hint="--inflation")
    by, _, edges = said.get("by", "").partition(":")
    lists = {name: tuple(said[name].split(",")) for name in ("of", "jitter") if name in said}
    try:
        bins = [float(edge) for edge in edges.split(",")] if edges else None
        jitter = [int(g) for g in lists.get("jitter", ())] if bins else lists.get("jitter", ())
        return Inflation(by or None, bins, lists.get("of"), jitter)
    except ValueError as problem:
        raise typer.BadParameter(f"{text!r}: {problem}", param_hint="--inflation") from None


def selection(texts: Sequence[str] | None) -> Any:
    """The cuts that --selection names."""
    from ..mixture.selections.cuts import parsed

    try:
        return None if not texts else [cut for text in texts for cut in parsed(text)]
    except ValueError as problem:
        raise typer.BadParameter(str(problem), param_hint="--selection") from None


def tails(text: str | None) -> Any:
    """The tails that --tails names: fit, or a number of degrees of freedom."""
    from ..mixture.tails import LEAST, MOST, StudentT

    try:
        return None if text is None else StudentT() if text == "fit" else StudentT(float(text))
    except ValueError:
        why = f"{text!r} is neither fit nor a number of degrees of freedom from {LEAST:g} to {MOST:g}"
        raise typer.BadParameter(why, param_hint="--tails") from None


def em(w: float, fixed: Fixed | None = None) -> EM:
    """Batch EM with a prior of this width, or without one."""
    from ..methods import EM, Prior

    return EM(prior=Prior(w=w) if w > 0 else None, fixed=fixed)
