"""The command fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from . import inputs, options, outputs, parsing
from .app import app, say, stop, tell

if TYPE_CHECKING:
    from ..fitting._fit import FitResult

HELD_OUT, HELD_OUT_ROWS = 0.1, 100_000
Way = Literal["auto", "em", "minibatch-em", "sgd"]


@app.command()
def fit(
    data: options.Data,
    output: Annotated[Path, typer.Option("--output", "-o", help="Model to write (.safetensors).")],
    components: Annotated[
        str, typer.Option("--components", "-k", help="How many Gaussians, or auto: chosen as by `xdeconv select`.")
    ],
    columns: options.Columns = None,
    covariance: options.Covariance = "full",
    method: Annotated[Way, typer.Option(help="How to fit; auto is em, in batches for long streams.")] = "auto",
    moves: Annotated[
        Literal["none", "auto", "bovy"] | None,
        typer.Option(help="Split, merge and revive components. Default: auto, or none with --log-prior."),
    ] = None,
    epochs: options.Epochs = None,
    batch_rows: Annotated[int | None, typer.Option(help="Rows of a minibatch.", min=1)] = None,
    seed: options.Seed = 0,
    start: Annotated[
        Literal["kmeans", "kmeans++", "random"],
        typer.Option("--start", "--centers", help="First centres. Under torchrun, write --centers."),
    ] = "kmeans",
    restarts: Annotated[int, typer.Option(help="Starts to try; the best is kept.", min=1)] = 1,
    tol: options.Tolerance = 0.1,
    validation: Annotated[
        float | None,
        typer.Option(help="Fraction to hold out; 0 for none. Default: 0.1, at most 100,000 rows.", min=0, max=0.9),
    ] = None,
    prior: options.PriorWidth = 0.0,
    where: options.Where = None,
    error: options.Errors = None,
    unit: options.Units = None,
    correlation: options.Correlation = None,
    error_pattern: options.ErrorPattern = None,
    correlation_pattern: options.CorrelationPattern = None,
    log_prior: options.LogPrior = None,
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
    cache: Annotated[
        Literal["device", "host", "none"] | None,
        typer.Option(help="Where rows stay between passes. Default: the first that they fit in."),
    ] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Read from disk in every epoch, even small data.")] = False,
    checkpoint: Annotated[Path | None, typer.Option(help="File to save to. Default: OUTPUT.checkpoint.")] = None,
    checkpoint_seconds: Annotated[float, typer.Option(help="Seconds between saves.", min=0)] = 10.0,
    resume: Annotated[bool, typer.Option("--resume", help="Resume from the checkpoint.")] = False,
    force: options.Force = False,
    device: options.Device = None,
    dtype: options.Number = None,
    rank_timeout: Annotated[float, typer.Option(help="Seconds that a rank waits for the others.", min=1)] = 600.0,
    config: options.Config = None,
) -> None:  # fmt: skip
    """Fit a mixture of Gaussians to the density of the true values, and print its log-likelihoods.

    Under torchrun, ranks share the rows: torchrun --nproc-per-node 8 -m xdeconv fit ...
    """
    arguments = inputs.opening(
        columns, error, unit, derive=derive, offset=offset, inflate=inflate, missing=missing, preset=preset,
        cos_dec=cos_dec, weight=weight, correlation=correlation, error_pattern=error_pattern,
        correlation_pattern=correlation_pattern, log_prior=log_prior,
    )  # fmt: skip
    k = count(components)
    beside = {"tails": parsing.tails(tails), "inflation": parsing.inflation(inflation),
              "selection": parsing.selection(selection)}  # fmt: skip
    saved = checkpoint or output.with_name(output.name + ".checkpoint")
    refuse_targets(output, saved, [*data, config, parsing.model_of(background)], force, resume)
    from ..fitting import _fit as fitting
    from ..fitting.checkpoint import Checkpoint
    from ..system.files import locked
    from ..system.ranks import process_group, restarted

    with process_group(device, rank_timeout) as own_device, only_first_speaks() as first, ExitStack() as held:
        first(held.enter_context, locked(output))
        source = inputs.open_data(
            data, arguments, where=where, bad_rows=bad_rows, skip_bad_files=skip_bad_files,
            memory=False if stream or cache == "none" else None,
        )  # fmt: skip
        first(say, source.describe())
        settings = {
            "components": k,
            "method": parsing.worded(method, prior),
            "start": start, "seed": seed, "covariance": covariance,
            "background": parsing.background(background, source.labels), **beside,
            "restarts": restarts, "epochs": epochs, "tol": tol,
            "batch_rows": batch_rows, "device": own_device, "dtype": dtype,
            "validation": held_out(validation, source.rows), "moves": moves, "cache": cache,
            "checkpoint": Checkpoint(saved, checkpoint_seconds, resume or restarted()),
        }  # fmt: skip
        result = fitting.fit(source, verbose=first.here, **settings)
        del settings["checkpoint"]  # which a model outlives
        settings |= {"method": method, "prior": prior}
        plain = {name: v if isinstance(v, (int, float, str, type(None))) else str(v) for name, v in settings.items()}
        remembered = {"where": where, "data": list(data), "options": plain}
        first(save, result, output, remembered, first.said)
        first(finish, result, output, saved, keep=checkpoint is not None)


def count(words: str) -> int | Literal["auto"]:
    """A whole number of at least 1, or auto."""
    if words == "auto":
        return "auto"
    if not words.isdecimal() or int(words) < 1:
        text = f"{words!r} is neither auto nor a whole number of at least 1"
        raise typer.BadParameter(text, param_hint="--components")
    return int(words)


def refuse_targets(output: Path, saved: Path, inputs: Sequence[str | Path | None], force: bool, resume: bool) -> None:
    """Refuse a model or a checkpoint over something else, or over each other, before any work."""
    outputs.checked(output, inputs, force, outputs.MODELS)
    outputs.refuse_input(saved, inputs, "--checkpoint")
    outputs.refuse_twice({"--output": output, "--checkpoint": saved})
    if saved.is_dir():
        raise IsADirectoryError(f"--checkpoint {saved} is a folder: name a file")
    from ..system.files import refuse_foreign

    if not resume:  # which reads it first, and says what is wrong with it
        refuse_foreign(saved, "checkpoint")


class First:
    """Calls things on rank 0 and on no other, and knows what was ``said`` so far."""

    def __init__(self, here: bool) -> None:
        self.here = here
        self.said: list[str] = []

    def __call__(self, function: Callable[..., Any], *arguments: Any, **more: Any) -> None:
        if self.here:
            function(*arguments, **more)


@contextmanager
def only_first_speaks() -> Iterator[First]:
    """Rank 0 says what the library logs, and writes everything; others are silent but for errors."""
    import logging

    from ..system.ranks import rank

    first = First(rank() == 0)

    class Said(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say(record.getMessage())
            first.said.append(record.getMessage())

    log, handler = logging.getLogger("xdeconv"), Said()
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO if first.here else logging.ERROR)
    try:
        yield first
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


def held_out(fraction: float | None, rows: int) -> float | None:
    """The fraction to hold out: a tenth unless told, at most 100,000 rows, none of very few."""
    if fraction is not None:
        return fraction or None
    return min(HELD_OUT, HELD_OUT_ROWS / rows) if rows >= 20 else None


def save(result: FitResult, output: Path, remembered: dict[str, Any], said: Sequence[str] = ()) -> None:
    """Write the model, with what was resolved and how its rows were read; tell the notes that were not ``said``."""
    meta = {**(result.mixture.meta or {}), **remembered}
    result.mixture.with_(meta=meta).save(output)
    for note in result.notes:
        if note not in said:
            say(f"note: {note}")


def finish(result: FitResult, output: Path, saved: Path, keep: bool) -> None:
    """Say what was found; after an interrupt, how to resume."""
    tell(f"train log-likelihood {result.loglik:.6f}")
    if result.validation is not None:
        tell(f"held-out log-likelihood {result.validation:.6f}")
    if result.interrupted:
        stop(130, f"interrupted: {output} is the best so far; the same command with --resume continues from {saved}")
    how = "converged" if result.converged else "stopped"
    say(f"{how} after {len(result.history)} epochs: {output}")
    if not keep:
        saved.unlink(missing_ok=True)
