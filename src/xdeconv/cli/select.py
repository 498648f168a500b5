"""The command select."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from . import inputs, options, outputs, parsing
from .app import app, say, stop, tell
from .fit import save

if TYPE_CHECKING:
    from ..studies._select import Selection


@app.command()
def select(
    data: options.Data,
    components: Annotated[
        str | None,
        typer.Option("--components", "-k", help="Numbers of Gaussians to try, such as 4,8,16 or 1-12. Default: 1 to "
                     "64, or as many as the rows may bear, in steps that become finer around the best."),
    ] = None,
    columns: options.Columns = None,
    covariance: options.Covariance = "full",
    criterion: Annotated[
        Literal["held-out", "cv", "bic", "aic"] | None,
        typer.Option(help="What judges. Default: cv (cross-validation), of 100,000 rows and more held-out."),
    ] = None,
    rule: Annotated[
        Literal["best", "one-se"] | None,
        typer.Option(help="one-se: the smallest that is not worse than the best by one standard error of their "
                     "difference. Default: one-se, for bic and aic best."),
    ] = None,
    folds: Annotated[
        int | None, typer.Option(help="Parts of the rows that cv leaves out in turn. Default: 5.", min=2)
    ] = None,
    validation: Annotated[
        float | None, typer.Option(help="Fraction of the rows that held-out judges by. Default: 0.2.", max=0.9)
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Picture of the curve: .png, .pdf or .svg.")
    ] = None,
    chosen_model: Annotated[
        Path | None, typer.Option("--model", help="File for the chosen model (.safetensors).")
    ] = None,
    results: Annotated[
        Path | None, typer.Option(help="File of finished fits (.jsonl): the same command resumes from there.")
    ] = None,
    force: options.Force = False,
    moves: Annotated[
        Literal["none", "auto"], typer.Option(help="Split, merge and revive components between passes.")
    ] = "auto",
    epochs: options.Epochs = None,
    restarts: Annotated[int, typer.Option(help="Starts of each fit, the first grown; the best is kept.", min=1)] = 1,
    tol: options.Tolerance = 0.1,
    prior: options.PriorWidth = 0.0,
    seed: options.Seed = 0,
    where: options.Where = None,
    error: options.Errors = None,
    unit: options.Units = None,
    correlation: options.Correlation = None,
    error_pattern: options.ErrorPattern = None,
    correlation_pattern: options.CorrelationPattern = None,
    derive: options.Derive = None,
    offset: options.Offset = None,
    inflate: options.Inflate = None,
    missing: options.Missing = None,
    cos_dec: options.CosDec = None,
    preset: options.Preset = None,
    background: options.Background = None,
    tails: options.Tails = None,
    inflation: options.Inflation = None,
    selection: options.Selection = None,
    weight: options.Weight = None,
    bad_rows: options.BadRows = "refuse",
    skip_bad_files: options.SkipBadFiles = False,
    device: options.Device = None,
    dtype: options.Number = None,
    config: options.Config = None,
) -> None:  # fmt: skip
    """Choose the number of Gaussians: print a table of scores, draw the curve, write the chosen model.

    Scores are compared row by row: the table and the curve have the difference to the best and its standard error.
    """
    sizes = None if components is None else numbers(components)
    beside = {"tails": parsing.tails(tails), "inflation": parsing.inflation(inflation),
              "selection": parsing.selection(selection)}  # fmt: skip
    refuse_targets(output, chosen_model, results, [*data, config, parsing.model_of(background)], force)
    arguments = inputs.opening(
        columns, error, unit, derive=derive, offset=offset, inflate=inflate, missing=missing, preset=preset,
        cos_dec=cos_dec, weight=weight, correlation=correlation, error_pattern=error_pattern,
        correlation_pattern=correlation_pattern,
    )  # fmt: skip
    source = inputs.open_data(data, arguments, where=where, bad_rows=bad_rows, skip_bad_files=skip_bad_files)
    say(source.describe())
    from ..studies import _select as studies

    settings: dict[str, Any] = {"moves": moves, "epochs": epochs, "restarts": restarts, "tol": tol, "device": device,
                                "dtype": dtype, "covariance": covariance}  # fmt: skip
    settings |= {"method": parsing.worded("em", prior)} if prior > 0 else {}
    beside |= {"background": parsing.background(background, source.labels)}
    settings |= {name: value for name, value in beside.items() if value is not None}
    choice = studies.select(
        source, sizes, criterion, rule=rule, folds=folds, validation=validation, seed=seed, results=results,
        verbose=True, **settings,
    )  # fmt: skip
    for line in str(choice).splitlines():
        tell(line)
    draw(choice, output)
    if chosen_model is not None and choice.result is not None:
        remembered = {"where": where, "data": list(data),
                      "options": {"components": choice.best, "criterion": choice.criterion, "seed": seed}
                      | {name: str(value) for name, value in beside.items() if value is not None}}  # fmt: skip
        save(choice.result, chosen_model, remembered)
        say(f"{choice.best} components: {chosen_model}")
    if choice.interrupted:
        again = "" if results is None else f": the same command resumes from {results}"
        stop(130, f"interrupted with {len(choice.table)} numbers done{again}")


def numbers(words: str) -> list[int]:
    """Whole numbers and ranges of them, separated by commas."""
    try:
        ends = [[int(end) for end in word.split("-")] for word in words.split(",")]
        return [k for first, *last in ends for k in range(first, (last[0] if last else first) + 1)]
    except ValueError:
        text = f"{words!r} is not whole numbers separated by commas, such as 4,8,16 or 1-12"
        raise typer.BadParameter(text, param_hint="--components") from None


def refuse_targets(
    output: Path | None, model: Path | None, results: Path | None, inputs: Sequence[str | Path | None], force: bool
) -> None:
    """What must not be written is better refused before the fits."""
    if output is not None:
        outputs.checked(output, inputs, force, outputs.PICTURES)
    if model is not None:
        outputs.checked(model, inputs, force, outputs.MODELS, "--model")
    if results is not None:
        outputs.refuse_input(results, inputs, "--results")
    outputs.refuse_twice({"--output": output, "--model": model, "--results": results})


def draw(choice: Selection, output: Path | None) -> None:
    """The curve, as a picture."""
    if output is None:
        return
    outputs.save_picture(choice.plot().figure, output)  # type: ignore[arg-type]
    say(f"the curve: {output}")
