"""The command fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .app import app, say, stop, tell

if TYPE_CHECKING:
    from ..fitting._fit import FitResult

HELD_OUT, HELD_OUT_ROWS = 0.1, 100_000
GRADIENT_ROWS = 512
MOVES = ("none", "auto", "bovy")


@app.command()
def fit(
    data: options.Data,
    output: Annotated[Path, typer.Option("--output", "-o", help="Model to write (.safetensors).")],
    components: Annotated[int, typer.Option("--components", "-k", help="How many Gaussians.", min=1)],
    columns: options.Columns = None,
    method: Annotated[str, typer.Option(help="auto (em; batches for long streams), em, minibatch-em or sgd.")] = "auto",
    moves: Annotated[str, typer.Option(help="none, auto or bovy: split, merge and revive components.")] = "auto",
    epochs: Annotated[int | None, typer.Option(help="Most passes over the data.", min=1)] = None,
    batch_rows: Annotated[int | None, typer.Option(help="Rows of a minibatch.", min=1)] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same result.")] = 0,
    start: Annotated[
        str,
        typer.Option("--start", "--centers", help="First centres: kmeans, kmeans++ or random; --centers for torchrun."),
    ] = "kmeans",
    restarts: Annotated[int, typer.Option(help="Starts to try; the best is kept.", min=1)] = 1,
    tol: Annotated[float, typer.Option(help="Stop when the log-likelihood changes by less in an epoch.")] = 1e-5,
    validation: Annotated[
        float | None,
        typer.Option(help="Fraction to hold out; 0 for none. Default: 0.1, at most 100,000 rows.", min=0, max=0.9),
    ] = None,
    prior: Annotated[float, typer.Option(help="w of the prior on covariances, a variance in the data's units.")] = 0.0,
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
    cache: Annotated[
        str | None,
        typer.Option(help="Where rows stay between passes: device, host or none. Default: the first that they fit in."),
    ] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Read from disk in every epoch, even small data.")] = False,
    checkpoint: Annotated[Path | None, typer.Option(help="File to save to. Default: OUTPUT.checkpoint.")] = None,
    checkpoint_seconds: Annotated[float, typer.Option(help="Seconds between saves.", min=0)] = 10.0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint.")] = False,
    device: Annotated[str | None, typer.Option(help="cpu or cuda. Default: cuda where there is one.")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32 or float64. Default: by device.")] = None,
    rank_timeout: Annotated[float, typer.Option(help="Seconds that a rank waits for the others.", min=1)] = 600.0,
    config: options.Config = None,
) -> None:  # fmt: skip
    """Fit a mixture of Gaussians to the density of the true values, and print its log-likelihoods.

    Under torchrun, ranks share the rows: torchrun --nproc-per-node 8 -m xdeconv fit ...
    """
    arguments = options.opening(columns, error, unit, derive, offset, inflate, preset, weight)
    from ..fitting import _fit as fitting
    from ..fitting.progress import show_progress
    from ..methods import suited_batch
    from ..system.files import locked
    from ..system.ranks import process_group, restarted

    with process_group(device, rank_timeout) as own_device, only_first_speaks() as first, ExitStack() as held:
        first(held.enter_context, locked(output))
        source = options.open_data(
            data, arguments, where=where, bad_rows=bad_rows, skip_bad_files=skip_bad_files,
            memory=False if stream or cache == "none" else None,
        )  # fmt: skip
        first(say, source.describe())
        saved = checkpoint or output.with_name(output.name + ".checkpoint")
        long = method == "auto" and fitting.in_batches(source, fitting.chosen_device(own_device))
        if batch_rows is None and (long or method in ("minibatch-em", "sgd")):
            batch_rows = GRADIENT_ROWS if method == "sgd" else suited_batch(components, source.dim)
        passes = epochs or (fitting.FULL_PASSES if batch_rows is None else fitting.MINIBATCH_PASSES)
        settings = {
            "components": components, "method": chosen_method(method, prior, (batch_rows, components, source.dim)),
            "start": start, "seed": seed,
            "restarts": restarts, "epochs": passes, "tol": tol,
            "batch_rows": batch_rows, "device": own_device, "dtype": dtype,
            "validation": held_out(validation, source.rows), "checkpoint": saved, "resume": resume or restarted(),
            "checkpoint_seconds": checkpoint_seconds, "moves": chosen_moves(moves), "cache": cache,
        }  # fmt: skip
        with show_progress(first.here, passes * restarts, source.rows) as callback:
            result = fitting.fit(source, callback=callback, **settings)
        plain = {name: v if isinstance(v, (int, float, str, type(None))) else str(v) for name, v in settings.items()}
        remembered = {"open": source.opening(), "where": where, "data": list(data), "options": plain}
        first(save, result, output, remembered, source.notes)
        first(finish, result, output, saved, keep=checkpoint is not None)


class First:
    """Calls things on rank 0 and on no other."""

    def __init__(self, here: bool) -> None:
        self.here = here

    def __call__(self, function: Callable[..., Any], *arguments: Any, **more: Any) -> None:
        if self.here:
            function(*arguments, **more)


@contextmanager
def only_first_speaks() -> Iterator[First]:
    """Rank 0 says what the library logs, and writes everything; others are silent but for errors."""
    import logging

    from ..system.ranks import rank

    class Said(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say(record.getMessage())

    log, handler = logging.getLogger("xdeconv"), Said()
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO if rank() == 0 else logging.ERROR)
    try:
        yield First(rank() == 0)
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


def chosen_method(name: str, w: float, size: tuple[Any, int, int] = (None, 1, 1)) -> Any:
    """The method that a word stands for; ``size`` is rows of a batch, components and dimensions."""
    from ..methods import EM, SGD, suited_step
    from ..methods.prior import Prior

    prior, batch_rows = Prior(w=w) if w > 0 else None, size[0]
    if name == "auto" and prior is None:
        return None
    if name == "em" and batch_rows:
        raise typer.BadParameter("em sees all rows in every update, minibatch-em has batches", param_hint="--method")
    if name in ("auto", "em") and not batch_rows:
        return EM(prior=prior)
    if name in ("auto", "minibatch-em"):
        return EM(step=suited_step(*size), prior=prior)
    if name == "sgd":
        return SGD(prior=prior)
    raise typer.BadParameter(f"{name!r} is none of auto, em, minibatch-em, sgd", param_hint="--method")


def chosen_moves(word: str) -> str:
    """The word for moves, if it is one."""
    if word not in MOVES:
        raise typer.BadParameter(f"{word!r} is none of {', '.join(MOVES)}", param_hint="--moves")
    return word


def held_out(fraction: float | None, rows: int) -> float | None:
    """The fraction to hold out: a tenth unless told, at most 100,000 rows, none of very few."""
    if fraction is not None:
        return fraction or None
    return min(HELD_OUT, HELD_OUT_ROWS / rows) if rows >= 20 else None


def save(result: FitResult, output: Path, remembered: dict[str, Any], notes: tuple[str, ...]) -> None:
    """Write the model, with what was resolved and how its rows were read."""
    meta = {**(result.mixture.meta or {}), **remembered, "reading": list(notes)}
    result.mixture.with_(meta=meta).save(output)
    for note in notes:
        say(f"note: {note}")


def finish(result: FitResult, output: Path, saved: Path, keep: bool) -> None:
    """Say what was found; after an interrupt, how to go on."""
    tell(f"train log-likelihood {result.loglik:.6f}")
    if result.validation is not None:
        tell(f"held-out log-likelihood {result.validation:.6f}")
    if result.interrupted:
        stop(130, f"interrupted: {output} is the best so far; the same command with --resume goes on from {saved}")
    how = "converged" if result.converged else "stopped"
    say(f"{how} after {len(result.history)} epochs: {output}")
    if not keep:
        saved.unlink(missing_ok=True)
