"""The command select."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .app import app, say, stop, tell
from .fit import chosen_method, save

if TYPE_CHECKING:
    from ..studies._select import Selection

PICTURES = (".png", ".pdf", ".svg")


@app.command()
def select(
    data: options.Data,
    components: Annotated[str, typer.Option("--components", "-k", help="Numbers of Gaussians to try, such as 4,8,16.")],
    columns: options.Columns = None,
    criterion: Annotated[str, typer.Option(help="held-out, cv (cross-validation), bic or aic.")] = "held-out",
    rule: Annotated[
        str, typer.Option(help="best, or one-se: the smallest number within one standard error of the best.")
    ] = "best",
    folds: Annotated[int, typer.Option(help="Parts of the rows that cv leaves out in turn.", min=2)] = 5,
    validation: Annotated[float, typer.Option(help="Fraction of the rows that held-out judges by.", max=0.9)] = 0.2,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Picture of the curve: .png, .pdf or .svg.")
    ] = None,
    model: Annotated[Path | None, typer.Option(help="File for the chosen model (.safetensors).")] = None,
    results: Annotated[
        Path | None, typer.Option(help="File of finished fits (.jsonl): the same command goes on from there.")
    ] = None,
    moves: Annotated[str, typer.Option(help="none, or auto: split, merge and revive components.")] = "auto",
    epochs: Annotated[int | None, typer.Option(help="Most passes over the data of each fit.", min=1)] = None,
    restarts: Annotated[int, typer.Option(help="Starts of each fit, the first grown; the best is kept.", min=1)] = 1,
    tol: Annotated[float, typer.Option(help="Stop when the log-likelihood changes by less in an epoch.")] = 1e-5,
    prior: Annotated[float, typer.Option(help="w of the prior on covariances, a variance in the data's units.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Same seed, same result.")] = 0,
    where: options.Where = None,
    error: options.Errors = None,
    unit: options.Units = None,
    derive: options.Derive = None,
    offset: options.Offset = None,
    inflate: options.Inflate = None,
    preset: options.Preset = None,
    weight: options.Weight = None,
    bad_rows: options.BadRows = "refuse",
    skip_bad_files: options.SkipBadFiles = False,
    device: Annotated[str | None, typer.Option(help="cpu or cuda. Default: cuda where there is one.")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32 or float64. Default: by device.")] = None,
    config: options.Config = None,
) -> None:  # fmt: skip
    """Choose the number of Gaussians: print a table of scores, draw the curve, write the chosen model."""
    sizes = numbers(components)
    refuse_words(output, moves)
    arguments = options.opening(columns, error, unit, derive, offset, inflate, preset, weight)
    source = options.open_data(data, arguments, where=where, bad_rows=bad_rows, skip_bad_files=skip_bad_files)
    say(source.describe())
    from ..studies import _select as selection

    settings: dict[str, Any] = {"moves": moves, "epochs": epochs, "restarts": restarts, "tol": tol, "device": device,
                                "dtype": dtype}  # fmt: skip
    settings |= {"method": chosen_method("em", prior)} if prior > 0 else {}
    found = selection.select(
        source, sizes, criterion, rule=rule, folds=folds, validation=validation, seed=seed, results=results,  # type: ignore[arg-type]
        verbose=True, **settings,
    )  # fmt: skip
    tell(str(found))
    draw(found, output)
    if model is not None and found.result is not None:
        remembered = {"open": source.opening(), "where": where, "data": list(data),
                      "options": {"components": found.best, "criterion": criterion, "seed": seed}}  # fmt: skip
        save(found.result, model, remembered, source.notes)
        say(f"{found.best} components: {model}")
    if found.interrupted:
        again = "" if results is None else f": the same command goes on from {results}"
        stop(130, f"interrupted with {len(found.table)} of {len(sizes)} numbers done{again}")


def numbers(words: str) -> list[int]:
    """Whole numbers separated by commas."""
    try:
        return [int(word) for word in words.split(",")]
    except ValueError:
        text = f"{words!r} is not whole numbers separated by commas, such as 4,8,16"
        raise typer.BadParameter(text, param_hint="--components") from None


def refuse_words(output: Path | None, moves: str) -> None:
    """What cannot be drawn or done is better refused before the fits."""
    if output is not None and output.suffix.lower() not in PICTURES:
        raise typer.BadParameter(f"{output} ends in none of {', '.join(PICTURES)}", param_hint="--output")
    if moves not in ("none", "auto"):
        raise typer.BadParameter(f"{moves!r} is neither none nor auto", param_hint="--moves")


def draw(found: Selection, output: Path | None) -> None:
    """The curve, as a picture."""
    if output is None:
        return
    found.plot().figure.savefig(output)  # type: ignore[union-attr]
    say(f"the curve: {output}")
