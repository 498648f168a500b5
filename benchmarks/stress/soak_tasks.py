"""What a long process is asked for: fits of every kind, questions, studies, cancelled fits, trouble and wrong inputs.

Each task takes a desk and a seed and returns the numbers that it found, which must be the same whenever it is asked
again. A task that needs a library that is not installed raises ImportError the first time, and is not asked again.
"""

from __future__ import annotations

import io
import itertools
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import xdeconv as xd

Array = np.ndarray
Task = Callable[["Desk", int], Array]
TASKS: dict[str, Task] = {}
NAMES = ["a", "b", "c"]


@dataclass(frozen=True)
class Desk:
    """Rows that all tasks share, where they compute, and a folder to write to."""

    device: str
    n: int
    folder: Path

    @cached_property
    def error(self) -> Array:
        """Standard deviations (n, 3), different in each row."""
        return np.random.default_rng(1).uniform(0.2, 0.8, size=(self.n, 3))

    @cached_property
    def noise(self) -> Array:
        """Covariances (n, 3, 3) with correlations."""
        A = np.random.default_rng(2).normal(scale=0.3, size=(self.n, 3, 3))
        return A @ A.transpose(0, 2, 1) + 0.05 * np.eye(3)

    @cached_property
    def X(self) -> Array:
        """Rows (n, 3) of three clusters."""
        rng = np.random.default_rng(3)
        centers = np.array([[0.0, 0, 0], [5.0, 0, 1], [0.0, 6, -2]])
        return (
            centers[rng.integers(3, size=self.n)]
            + rng.normal(size=(self.n, 3))
            + self.error * rng.normal(size=(self.n, 3))
        )

    @cached_property
    def gaps(self) -> Array:
        """The rows with a fifth of their values missing."""
        return np.where(np.random.default_rng(4).random(self.X.shape) < 0.2, np.nan, self.X)

    @cached_property
    def model(self) -> xd.Mixture:
        """One fit that questions are put to."""
        return self.fit(3).mixture

    @cached_property
    def table(self) -> Path:
        """A Parquet file of the rows and their errors."""
        import pyarrow
        import pyarrow.parquet

        columns = {name: self.gaps[:, a] for a, name in enumerate(NAMES)}
        errors = {f"{name}_error": self.error[:, a] for a, name in enumerate(NAMES)}
        path = self.folder / "rows.parquet"
        pyarrow.parquet.write_table(pyarrow.table({**columns, **errors}), path, row_group_size=max(1, self.n // 4))
        return path

    def fit(self, components: Any = 3, X: Any = None, **words: Any) -> xd.FitResult:
        """A fit of the rows with their errors, unless words say otherwise."""
        if not words.keys() & {"noise", "error"}:
            words["error"] = self.error
        words = {"device": self.device, "epochs": 60, **words}
        return xd.fit(self.X if X is None else X, components, **words)


def task(function: Task) -> Task:
    """Have a function asked in every round."""
    TASKS[function.__name__] = function
    return function


def numbers(mixture: xd.Mixture) -> Array:
    """All parameters of a mixture."""
    return np.concatenate([mixture.weights, mixture.means.ravel(), mixture.covariances.ravel()])


@contextmanager
def refused(*kinds: type[BaseException]) -> Iterator[None]:
    """What is inside must raise one of these."""
    try:
        yield
    except kinds:
        return
    raise AssertionError("what is wrong was taken without a word")


# Fits


@task
def plain_fit(desk: Desk, seed: int) -> Array:
    return numbers(desk.fit(4, seed=seed).mixture)


@task
def fit_in_the_other_number_type(desk: Desk, seed: int) -> Array:
    other = "float32" if desk.device == "cpu" else "float64"
    return numbers(desk.fit(3, seed=seed, dtype=other, moves="none").mixture)


@task
def fit_with_correlated_noise_and_gaps(desk: Desk, seed: int) -> Array:
    return numbers(desk.fit(3, desk.gaps, noise=desk.noise, seed=seed, moves="none").mixture)


@task
def fit_of_projected_rows(desk: Desk, seed: int) -> Array:
    R = np.random.default_rng(5).normal(size=(desk.n, 2, 3))
    seen = np.einsum("npd,nd->np", R, desk.X)
    found = desk.fit(2, seen, error=desk.error[:, :2], projection=R, seed=seed, moves="none", epochs=20)
    return numbers(found.mixture)


@task
def minibatches(desk: Desk, seed: int) -> Array:
    return numbers(desk.fit(4, method="minibatch-em", epochs=3, seed=seed).mixture)


@task
def gradients(desk: Desk, seed: int) -> Array:
    return numbers(desk.fit(3, method="sgd", epochs=2, seed=seed, moves="none").mixture)


@task
def structures(desk: Desk, seed: int) -> Array:
    kinds = ("tied", "diagonal", "spherical", xd.LowRank(1))
    return np.concatenate([numbers(desk.fit(2, covariance=kind, seed=seed, moves="none", epochs=15).mixture)
                           for kind in kinds])  # fmt: skip


@task
def many_dimensions(desk: Desk, seed: int) -> Array:
    found = []
    for d in (1, 5, 14, 24):
        X = np.random.default_rng(d).normal(size=(desk.n, d))
        found.append(numbers(desk.fit(2, X, error=[0.5] * d, seed=seed, moves="none", epochs=4).mixture))
    return np.concatenate(found)


@task
def many_components(desk: Desk, seed: int) -> Array:
    return numbers(desk.fit(64, seed=seed, moves="none", epochs=5, start="kmeans++").mixture)


@task
def fit_with_a_background(desk: Desk, seed: int) -> Array:
    box = xd.Uniform([-10.0] * 3, [15.0] * 3)
    return numbers(desk.fit(3, background=box, seed=seed, moves="none").mixture)


@task
def fit_with_tails(desk: Desk, seed: int) -> Array:
    return numbers(desk.fit(2, tails=5.0, seed=seed, epochs=15).mixture)


@task
def fit_with_inflation(desk: Desk, seed: int) -> Array:
    return numbers(desk.fit(2, inflation=xd.Inflation(), seed=seed, moves="none", epochs=15).mixture)


@task
def fit_of_selected_rows(desk: Desk, seed: int) -> Array:
    kept = desk.X[:, 0] > -1.0
    found = desk.fit(2, desk.X[kept], error=desk.error[kept], selection=xd.Cut(0, above=-1.0), seed=seed,
                     moves="none", epochs=15)  # fmt: skip
    return numbers(found.mixture)


@task
def fit_with_held_out_rows(desk: Desk, seed: int) -> Array:
    return numbers(desk.fit(3, validation=0.2, patience=3, seed=seed).mixture)


@task
def fit_with_priors_of_rows(desk: Desk, seed: int) -> Array:
    table = np.log([[0.9, 0.1], [0.2, 0.8]])
    found = desk.fit(2, log_prior=table, label=(desk.X[:, 0] > 2.5).astype(int), seed=seed, epochs=10)
    return numbers(found.mixture)


@task
def fit_that_chooses_its_components(desk: Desk, seed: int) -> Array:
    few = min(desk.n, 600)
    return numbers(desk.fit("auto", desk.X[:few], error=desk.error[:few], seed=seed, epochs=15).mixture)


@task
def fits_side_by_side(desk: Desk, seed: int) -> Array:
    found: dict[int, Array] = {}

    def work(place: int) -> None:
        found[place] = numbers(desk.fit(2, seed=seed + place, moves="none", epochs=10).mixture)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return np.concatenate([found[0], found[1]])


@task
def streamed_fit(desk: Desk, seed: int) -> Array:
    source = xd.open(desk.table, NAMES, memory=False)
    found = [xd.fit(source, 2, cache=cache, seed=seed, device=desk.device, moves="none", epochs=4).mixture
             for cache in ("none", "host", "device")
             if cache == "none" or desk.device != "cpu"]  # fmt: skip
    return np.concatenate([numbers(mixture) for mixture in found])


@task
def scikit_learn_habits(desk: Desk, seed: int) -> Array:
    model = xd.XDGMM(3, random_state=seed, device=desk.device).fit(desk.X, error=desk.error)
    labels = model.predict(desk.X[:100], error=desk.error[:100])
    return np.concatenate([model.means_.ravel(), labels.astype(float)])


@task
def other_tools_calls(desk: Desk, seed: int) -> Array:
    amplitudes, means, covariances = np.full(2, 0.5), desk.X[seed : seed + 2].copy(), np.stack([np.eye(3)] * 2)
    few = slice(0, min(desk.n, 1000))
    best = xd.compat.extreme_deconvolution(desk.X[few], desk.error[few] ** 2, amplitudes, means, covariances)
    return np.array([float(best), *amplitudes, *means.ravel()])


# Questions


@task
def densities_and_shares(desk: Desk, seed: int) -> Array:
    given = {"error": desk.error, "device": desk.device}
    shares = desk.model.responsibilities(desk.X, **given)
    return np.concatenate([desk.model.log_prob(desk.gaps, **given), shares.ravel(),
                           [desk.model.score(desk.X, **given)]])  # fmt: skip


@task
def posteriors(desk: Desk, seed: int) -> Array:
    rows = slice(seed * 200, (seed + 1) * 200)
    known = desk.model.posterior(desk.gaps[rows], error=desk.error[rows], device=desk.device)
    return np.concatenate([known.mean().ravel(), known.covariance().ravel(), known.sample(2, seed=seed).ravel(),
                           known.along([1.0, 0.0, 0.0]).quantile(0.5)])  # fmt: skip


@task
def draws_and_conditions(desk: Desk, seed: int) -> Array:
    given = desk.model.condition({0: 1.0 + seed}, error={0: 0.1})
    return np.concatenate([desk.model.sample(500, seed=seed, device=desk.device).ravel(), numbers(given),
                           numbers(desk.model.marginal([0, 2]))])  # fmt: skip


@task
def outliers(desk: Desk, seed: int) -> Array:
    rows = slice(seed * 100, (seed + 1) * 100)
    return desk.model.outlier(desk.X[rows], error=desk.error[rows])


@task
def classes(desk: Desk, seed: int) -> Array:
    near, far = desk.model, xd.Mixture(desk.model.weights, desk.model.means + 2.0, desk.model.covariances)
    shares = xd.Classifier({"near": near, "far": far}, "fitted").predict_proba(desk.X, error=desk.error)
    return np.asarray(shares).ravel()


@task
def models_as_files(desk: Desk, seed: int) -> Array:
    path = desk.folder / "model.safetensors"
    desk.model.save(path)
    return numbers(xd.load(path))


@task
def pictures(desk: Desk, seed: int) -> Array:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    xd.plot.corner(desk.model)
    pyplot.gcf().savefig(io.BytesIO(), dpi=40)
    pyplot.close("all")
    return np.zeros(1)


# Studies


@task
def choice_of_components(desk: Desk, seed: int) -> Array:
    found = xd.select(desk.X, [1, 2], error=desk.error, device=desk.device, seed=seed, epochs=10, moves="none")
    return np.array([record.score for record in found.table])


@task
def refits_to_rows_drawn_again(desk: Desk, seed: int) -> Array:
    found = xd.bootstrap(desk.X, desk.model, 2, seed, error=desk.error, device=desk.device, epochs=10)
    return np.concatenate([numbers(mixture) for mixture in found.mixtures])


@task
def standard_errors(desk: Desk, seed: int) -> Array:
    return xd.errors(desk.X, desk.model, error=desk.error, device=desk.device).means.ravel()


@task
def checks(desk: Desk, seed: int) -> Array:
    few = min(desk.n, 1000)
    found = xd.check(desk.X[:few], desk.model, error=desk.error[:few], seed=seed)
    return np.array([len(verdict.text) for verdict in found.verdicts], dtype=float)


@task
def simulated_stars(desk: Desk, seed: int) -> Array:
    return xd.simulate.gaia(2000, seed, device=desk.device).batch.x.double().cpu().numpy().ravel()


# Files and the command


@task
def a_store(desk: Desk, seed: int) -> Array:
    import shutil

    from xdeconv.catalog.store import prepare

    shutil.rmtree(desk.folder / "store", ignore_errors=True)
    store = prepare(desk.table, desk.folder / "store")
    return numbers(xd.fit(store, 2, columns=NAMES, seed=seed, device=desk.device, moves="none", epochs=4).mixture)


@task
def the_command(desk: Desk, seed: int) -> Array:
    from xdeconv.cli.app import run

    path = desk.folder / "command.safetensors"
    words = ["fit", str(desk.table), "-c", ",".join(NAMES), "-k", "2", "--seed", str(seed), "--device", desk.device,
             "-o", str(path), "--force", "--epochs", "5"]  # fmt: skip
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said), suppress(SystemExit):
        run(words)
    assert path.exists(), said.getvalue()[-300:]
    found = numbers(xd.load(path))
    path.unlink()
    return found


@task
def pandas_tables(desk: Desk, seed: int) -> Array:
    import pandas as pd

    return _of_a_table(desk, pd.DataFrame(_columns(desk)), seed)


@task
def polars_tables(desk: Desk, seed: int) -> Array:
    import polars as pl

    return _of_a_table(desk, pl.DataFrame(_columns(desk)), seed)


@task
def fits_files(desk: Desk, seed: int) -> Array:
    from astropy.table import Table

    path = desk.folder / "rows.fits"
    Table(_columns(desk)).write(path, overwrite=True)
    return _of_a_table(desk, path, seed)


@task
def hdf5_files(desk: Desk, seed: int) -> Array:
    import h5py

    path = desk.folder / "rows.hdf5"
    with h5py.File(path, "w") as file:
        for name, values in _columns(desk).items():
            file[name] = values
    return _of_a_table(desk, path, seed)


@task
def dask_frames(desk: Desk, seed: int) -> Array:
    import dask.dataframe as dd
    import pandas as pd

    if desk.device != "cpu":
        return np.zeros(1)
    return _of_a_table(desk, dd.from_pandas(pd.DataFrame(_columns(desk)), npartitions=2), seed)


def _columns(desk: Desk) -> dict[str, Array]:
    errors = {f"{name}_error": desk.error[:, a] for a, name in enumerate(NAMES)}
    return {**{name: desk.gaps[:, a] for a, name in enumerate(NAMES)}, **errors}


def _of_a_table(desk: Desk, table: Any, seed: int) -> Array:
    found = xd.fit(table, 2, columns=NAMES, seed=seed, device=desk.device, moves="none", epochs=3)
    return numbers(found.mixture)


# Cancelled fits


@task
def cancelled_fits(desk: Desk, seed: int) -> Array:
    class Enough(Exception):
        pass

    def stop(problem: type[BaseException], at: int) -> Callable[[Any], None]:
        def look(record: Any) -> None:
            if record.epoch >= at:
                raise problem

        return look

    for problem, method in itertools.product((KeyboardInterrupt, Enough), ("em", "minibatch-em", "sgd")):
        with suppress(Enough, KeyboardInterrupt):
            desk.fit(3, method=method, callback=stop(problem, 1), epochs=4, seed=seed, moves="none")
    return np.zeros(1)


@task
def cancelled_and_resumed(desk: Desk, seed: int) -> Array:
    path = desk.folder / "cancelled.checkpoint"
    path.unlink(missing_ok=True)
    words: dict[str, Any] = {"seed": seed, "epochs": 6, "tol": 0, "moves": "none"}

    def look(record: Any) -> None:
        if record.epoch == 3:
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        desk.fit(3, checkpoint=xd.Checkpoint(path, every=0), callback=look, **words)
    resumed = numbers(desk.fit(3, checkpoint=xd.Checkpoint(path, every=0, resume=True), **words).mixture)
    whole = numbers(desk.fit(3, **words).mixture)
    assert (resumed == whole).all(), f"resumed and whole differ by {np.abs(resumed - whole).max():.3g}"
    return resumed


@task
def cancelled_streams(desk: Desk, seed: int) -> Array:
    def look(record: Any) -> None:
        raise KeyboardInterrupt

    source = xd.open(desk.table, NAMES, memory=False)
    with suppress(KeyboardInterrupt):
        xd.fit(source, 2, seed=seed, device=desk.device, cache="none", callback=look, moves="none")
    batches = iter(source.batches(0))
    next(batches)
    del batches
    return np.zeros(1)


# Numerical trouble


@task
def repeated_rows_without_noise(desk: Desk, seed: int) -> Array:
    X = np.repeat(desk.X[:20], desk.n // 20, axis=0)
    return _sound(desk, X, seed)


@task
def a_constant_column(desk: Desk, seed: int) -> Array:
    X = desk.X.copy()
    X[:, 1] = 7.0
    return _sound(desk, X, seed)


@task
def far_outliers(desk: Desk, seed: int) -> Array:
    X = desk.X.copy()
    X[seed :: desk.n // 5] = 1e12
    return _sound(desk, X, seed)


@task
def columns_of_very_different_sizes(desk: Desk, seed: int) -> Array:
    return _sound(desk, desk.X * [1e-12, 1.0, 1e12] + [0.0, 1e8, 0.0], seed)


def _sound(desk: Desk, X: Array, seed: int) -> Array:
    """A fit that ends, in sound parameters or in a word of trouble, in both number types."""
    found = []
    for dtype in ("float32", "float64"):
        try:
            result = xd.fit(X, 3, error=[0.0] * 3, seed=seed, device=desk.device, dtype=dtype, epochs=10, moves="none")
            assert np.isfinite(numbers(result.mixture)).all()
            found.append(numbers(result.mixture))
        except (ValueError, ArithmeticError):
            found.append(np.ones(1))
    return np.concatenate(found)


# Wrong inputs


@task
def wrong_inputs(desk: Desk, seed: int) -> Array:
    X, error = desk.X, desk.error
    bad = X.copy()
    bad[3, 1] = np.inf
    wrongs: list[Callable[[], Any]] = [
        lambda: desk.fit(3, error=-error),
        lambda: desk.fit(3, error=error[:-1]),
        lambda: desk.fit(3, error=error[:, :2]),
        lambda: desk.fit(3, noise=np.full((desk.n, 3, 3), [[1.0, 2, 0], [2, 1, 0], [0, 0, 1]])),
        lambda: desk.fit(3, bad),
        lambda: desk.fit(0),
        lambda: desk.fit(2.5),
        lambda: desk.fit(3, np.array([["a", "b", "c"]] * desk.n)),
        lambda: desk.fit(3, seed=-1),
        lambda: desk.fit(3, method="newton"),
        lambda: desk.fit(3, device="tpu"),
        lambda: desk.fit(3, dtype="float16"),
        lambda: desk.fit(3, projection=np.ones((desk.n, 2, 2))),
        lambda: desk.fit(3, weight=-np.ones(desk.n)),
        lambda: desk.model.score(X[:, :2], error=error[:, :2], device=desk.device),
        lambda: desk.model.posterior(X, error=error[:5]),
        lambda: desk.model.condition({"nothing": 1.0}),
        lambda: xd.open(desk.table, ["nothing"]),
        lambda: xd.open(desk.table, NAMES, where="__import__('os')"),
        lambda: xd.select(X, [], error=error),
        lambda: xd.check(X, None, error=error),
    ]
    for wrong in wrongs:
        with refused(ValueError, TypeError):
            wrong()
    return np.zeros(1)


@task
def more_than_there_is_memory(desk: Desk, seed: int) -> Array:
    with refused(MemoryError, ValueError, RuntimeError):
        desk.fit(desk.n, np.zeros((desk.n, 2000)), error=[1.0] * 2000, start="random", moves="none")
    return np.zeros(1)


@task
def damaged_files(desk: Desk, seed: int) -> Array:
    path = desk.folder / "damaged.parquet"
    content = desk.table.read_bytes()
    path.write_bytes(content[: (seed + 1) * len(content) // 5])
    with refused(ValueError, OSError):
        xd.fit(path, 2, columns=NAMES, device=desk.device)
    model = desk.folder / "damaged.safetensors"
    desk.model.save(model)
    model.write_bytes(model.read_bytes()[:-1] + b"\0\0")
    with refused(ValueError, OSError):
        xd.load(model)
    return np.zeros(1)


@task
def a_callback_that_fails(desk: Desk, seed: int) -> Array:
    def look(record: Any) -> None:
        raise ZeroDivisionError

    with refused(ZeroDivisionError):
        desk.fit(2, callback=look, seed=seed)
    return np.zeros(1)


def asked(name: str, desk: Desk, seed: int) -> Array:
    """What a task found, without warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(TASKS[name](desk, seed), dtype=np.float64)
