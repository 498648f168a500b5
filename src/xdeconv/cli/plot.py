"""The command plot: one picture of a model, with rows where it needs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import inputs, options, outputs, parsing
from .app import app, say

if TYPE_CHECKING:
    from ..mixture._mixture import Mixture
    from ..rows.batch import Batch

MOST_COORDINATES = 8  # of a corner plot, unless they are named
NEED_ROWS = ("calibration", "misfit", "denoised")
TAKE_ROWS = ("corner", "density", "marginal", "sky", "cmd", *NEED_ROWS)
TAKE_LIMITS = TAKE_COMPONENTS = ("corner", "density", "marginal", "sky", "cmd")
NO_CONDITION = ("history", *NEED_ROWS)


@dataclass(frozen=True)
class Wanted:
    """What to draw: the kind of picture, its coordinates, the fixed values, and rows if there are any."""

    kind: str
    names: list[str | int] | None
    given: dict[str | int, float]
    rows: Batch | None
    components: bool
    limits: dict[str | int, tuple[float, float]]


@app.command()
def plot(
    model: options.Model,
    corner: Annotated[
        str | None, typer.Option(help="Corner plot of coordinates separated by commas, or all.")
    ] = None,
    density: Annotated[str | None, typer.Option(help="Density of two coordinates: A,B.")] = None,
    marginal: Annotated[str | None, typer.Option(help="Density of one coordinate.")] = None,
    sky: Annotated[bool, typer.Option("--sky", help="Map of the sky, or of the field that a model is of.")] = False,
    cmd: Annotated[bool, typer.Option("--cmd", help="Colour-magnitude diagram.")] = False,
    coordinates: Annotated[
        str | None, typer.Option(help="For --sky and --cmd, the two coordinates, where labels do not tell: A,B.")
    ] = None,
    history: Annotated[bool, typer.Option("--history", help="Training curves.")] = False,
    calibration: Annotated[
        list[str] | None,
        typer.Option(help="Held-out rows: are they where the model says? Files or globs. Repeatable.", metavar="DATA"),
    ] = None,
    misfit: Annotated[str | None, typer.Option(help="Map of where rows of --data fit badly: A,B.")] = None,
    denoised: Annotated[str | None, typer.Option(help="Rows of --data before and after: A,B.")] = None,
    data: Annotated[
        list[str] | None, typer.Option(help="Rows to draw with the model. Files or globs. Repeatable.")
    ] = None,
    condition: Annotated[
        list[str] | None, typer.Option(help="Hold coordinates fixed: A=1.0,B=2. Repeatable.")
    ] = None,
    components: Annotated[bool, typer.Option("--components", help="Draw the components too.")] = False,
    limits: Annotated[
        list[str] | None, typer.Option(help="Ends of axes: A=0:5,B=-1:2. Default: where the model is. Repeatable.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Picture: .png, .pdf, .svg or .jpg. Default: MODEL-KIND.png.")
    ] = None,
    dpi: Annotated[int, typer.Option(help="Dots per inch.", min=20, max=1200)] = 150,
    most_rows: Annotated[int, typer.Option(help="Use at most so many rows, chosen at random.", min=1)] = 100_000,
    seed: Annotated[int, typer.Option(help="Same seed, same rows.")] = 0,
    columns: options.Columns = None,
    where: options.Where = None,
    error: options.Errors = None,
    unit: options.Units = None,
    correlation: options.Correlation = None,
    error_pattern: options.ErrorPattern = None,
    correlation_pattern: options.CorrelationPattern = None,
    log_prior: options.LogPrior = None,
    bad_rows: options.BadRows = "refuse",
    skip_bad_files: options.SkipBadFiles = False,
    force: options.Force = False,
    config: options.Config = None,
) -> None:  # fmt: skip
    """Draw a model: corner plot, density, sky, colours and magnitudes, training, calibration, denoised rows.

    Without a kind of picture, the one that suits the model's coordinates.
    """
    asked = {"corner": corner, "density": density, "marginal": marginal, "sky": sky, "cmd": cmd, "history": history,
             "calibration": calibration, "misfit": misfit, "denoised": denoised}  # fmt: skip
    from ..mixture._mixture import load

    files = [*(data or ()), *(calibration or ())]
    given, ends = fixed(condition), ranges(limits)
    kind = one_kind(asked)
    mixture = load(model)
    kind = kind or suited_kind(mixture, len(given))
    refuse_mismatch(kind, bool(files), bool(given), coordinates, bool(ends), components)
    target = output or model.with_name(f"{model.stem}-{kind}.png")
    outputs.checked(target, [model, *files, config], force, outputs.PICTURES)
    rows = None
    if files:
        arguments = inputs.opening(
            columns, error, unit, correlation=correlation, error_pattern=error_pattern,
            correlation_pattern=correlation_pattern, log_prior=log_prior,
        )  # fmt: skip
        reading: dict[str, Any] = {"where": where, "bad_rows": bad_rows, "skip_bad_files": skip_bad_files}
        rows = some_rows(inputs.open_for(mixture, files, arguments, **reading), most_rows, seed)
    words = asked[kind] if isinstance(asked[kind], str) else coordinates
    names = None if words in (None, "all") else listed(str(words))
    axes = draw(mixture, Wanted(kind, names, given, rows, components, ends))
    outputs.save_picture(axes.figure, target, dpi=dpi)
    say(f"written: {target}")


def one_kind(asked: dict[str, Any]) -> str | None:
    """The one picture that is asked for, if any is."""
    kinds = [kind for kind, value in asked.items() if value]
    if len(kinds) > 1:
        raise typer.BadParameter("one picture at a time: " + ", ".join(f"--{kind}" for kind in kinds) + " were given")
    return kinds[0] if kinds else None


def suited_kind(mixture: Mixture, fixed: int) -> str:
    """The picture of all that is free: a curve, the sky, colours and magnitudes, a density or a corner plot."""
    from ..plot.photometry import colour_and_magnitude
    from ..plot.skymap import POSITIONS

    free = mixture.d - fixed
    if free > 2 or fixed:
        return "corner"
    labels = tuple(label.lower() for label in mixture.labels or ())
    if labels in POSITIONS:
        return "sky"
    if free == 2 and len(colour_and_magnitude(mixture.labels or ())) == 2:
        return "cmd"
    return "density" if free == 2 else "marginal"


def refuse_mismatch(
    kind: str, rows: bool, given: bool, coordinates: str | None, limits: bool, components: bool
) -> None:
    """Options that the picture does not have are better refused than ignored."""
    if kind in NEED_ROWS and not rows:
        raise typer.BadParameter(f"--{kind} needs rows: name files", param_hint="--data")
    if rows and kind not in TAKE_ROWS:
        raise typer.BadParameter(f"--{kind} draws no rows", param_hint="--data")
    if given and kind in NO_CONDITION:
        raise typer.BadParameter(f"--{kind} is of the whole model", param_hint="--condition")
    if given and rows:
        raise typer.BadParameter("rows do not lie at the given values: leave out --data", param_hint="--condition")
    if limits and kind not in TAKE_LIMITS:
        raise typer.BadParameter(f"--{kind} chooses its own axes", param_hint="--limits")
    if components and kind not in TAKE_COMPONENTS:
        raise typer.BadParameter(f"--{kind} draws no components", param_hint="--components")
    if coordinates and kind not in ("sky", "cmd", "calibration"):
        raise typer.BadParameter(f"--{kind} names its own coordinates", param_hint="--coordinates")


def listed(words: str) -> list[str | int]:
    """Coordinates separated by commas: labels, or indices where a word is a whole number."""
    return [int(word) if word.strip().isdigit() else word.strip() for word in words.split(",")]


def fixed(items: Sequence[str] | None) -> dict[str | int, float]:
    """A=1.0,B=2 as values of coordinates."""
    values = parsing.numbers(_words(items), "--condition")
    return {listed(name)[0]: value for name, value in values.items()}


def ranges(items: Sequence[str] | None) -> dict[str | int, tuple[float, float]]:
    """A=0:5,B=-1:2 as ends of axes."""
    limits: dict[str | int, tuple[float, float]] = {}
    for name, text in (parsing.pairs(_words(items), "--limits") or {}).items():
        try:
            low, high = (float(part) for part in text.split(":"))
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not LOW:HIGH for {name}", param_hint="--limits") from None
        if not (isfinite(low) and isfinite(high) and low < high):
            raise typer.BadParameter(f"{text!r} of {name} does not rise", param_hint="--limits")
        limits[listed(name)[0]] = (low, high)
    return limits


def _words(items: Sequence[str] | None) -> list[str]:
    """NAME=VALUE words, of which one item may hold several, separated by commas."""
    return [word for item in items or () for word in item.split(",") if word.strip()]


def some_rows(source: Any, most: int, seed: int) -> Batch:
    """The rows to draw: all, or some at random."""
    rows = source.rows
    if not rows:
        raise ValueError("there are no rows to draw")
    if rows > most:
        say(f"{most:,} of {rows:,} rows, chosen at random")
    batch = source.sample(min(most, rows), seed)
    for note in source.notes:
        say(f"note: {note}")
    return batch


def draw(mixture: Mixture, wanted: Wanted) -> Any:
    """The axes of a picture, or the first of them, with a legend, and a title of what is held fixed."""
    import numpy as np

    from ..plot.axes import entitle, explain
    from ..plot.conditionals import words

    ax = np.asarray(DRAW[wanted.kind](mixture, wanted), dtype=object).flat[0]
    if wanted.kind in ("density", "marginal", "cmd", "sky"):
        explain(ax)
    if wanted.given:
        entitle(ax.figure, "given " + words(mixture, wanted.given))
    return ax


def _corner(mixture: Mixture, wanted: Wanted) -> Any:
    from .. import plot as pictures

    names, left = wanted.names, mixture.d - len(wanted.given) - MOST_COORDINATES
    if names is None and left > 0:
        say(f"the first {MOST_COORDINATES} coordinates; name others with --corner A,B,...")
        held = mixture.indices(list(wanted.given)) if wanted.given else ()
        free = [a for a in range(mixture.d) if a not in held][:MOST_COORDINATES]
        names = [mixture.labels[a] if mixture.labels else i for i, a in enumerate(free)]
    return pictures.corner(
        mixture, wanted.rows, names, given=wanted.given or None, components=wanted.components, limits=wanted.limits
    )


def _density(mixture: Mixture, wanted: Wanted) -> Any:
    from .. import plot as pictures

    names, given = wanted.names or [0, 1], wanted.given or None
    ax = pictures.density_2d(mixture, names, given=given, limits=wanted.limits, data=wanted.rows)
    return pictures.ellipses(mixture, names, ax, given=given) if wanted.components else ax


def _marginal(mixture: Mixture, wanted: Wanted) -> Any:
    from .. import plot as pictures

    names = wanted.names or [0]
    if len(names) != 1:
        raise ValueError(f"--marginal takes one coordinate, got {names}")
    values, noise = None, None
    if wanted.rows is not None:
        (a,) = mixture.indices(names)
        values = wanted.rows.x[a].double().numpy()
        noise = None if wanted.rows.noise is None else wanted.rows.covariance()[:, a, a].double().numpy()
    given = wanted.given or None
    return pictures.marginal_1d(
        mixture, names[0], data=values, noise=noise, given=given, components=wanted.components, limits=wanted.limits
    )


def _sky(mixture: Mixture, wanted: Wanted) -> Any:
    from .. import plot as pictures

    return pictures.sky(
        mixture, wanted.names, data=wanted.rows, given=wanted.given or None, limits=wanted.limits,
        components=wanted.components,
    )  # fmt: skip


def _cmd(mixture: Mixture, wanted: Wanted) -> Any:
    from .. import plot as pictures

    return pictures.colour_magnitude(
        mixture, wanted.names, data=wanted.rows, given=wanted.given or None, components=wanted.components,
        limits=wanted.limits,
    )  # fmt: skip


def _history(mixture: Mixture, wanted: Wanted) -> Any:
    from .. import plot as pictures

    return pictures.history(mixture)


def _with_rows(kind: str) -> Callable[[Mixture, Wanted], Any]:
    def picture(mixture: Mixture, wanted: Wanted) -> Any:
        from .. import plot as pictures

        return getattr(pictures, kind)(mixture, wanted.rows, wanted.names)

    return picture


DRAW: dict[str, Callable[[Any, Wanted], Any]] = {
    "corner": _corner, "density": _density, "marginal": _marginal, "sky": _sky, "cmd": _cmd, "history": _history,
    **{kind: _with_rows(kind) for kind in NEED_ROWS},
}  # fmt: skip
