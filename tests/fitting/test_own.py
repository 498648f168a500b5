"""A source and a method that a user wrote, from docs/extending.md alone, through everything that a fit does."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import xdeconv as xd
from xdeconv.fitting import memory
from xdeconv.fitting._fit import NumericalTrouble

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
from blocks import runnable

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
N, BLOCK = 1200, 100


class Blocks(xd.Source):
    """Rows in blocks, of which it counts how often they are read. Nothing is written that need not be."""

    dim = 2

    def __init__(self, X, error=None):
        self.X, self.error, self.passes, self.read = X, error, 0, 0

    @property
    def rows(self):
        return len(self.X)

    def batches(self, epoch, *, rank=0, world=1):
        self.passes += rank == 0
        for start in range(BLOCK * rank, self.rows, BLOCK * world):
            some = slice(start, start + BLOCK)
            self.read += len(self.X[some])
            yield xd.Batch.from_arrays(self.X[some], error=None if self.error is None else self.error[some])


@pytest.fixture(scope="module")
def method():
    """The method of the page."""
    names: dict = {}
    for block in runnable(PAGE):
        code = block.text.partition("\nresult = ")[0].partition("\ndamped = ")[0]
        exec(compile(code, str(PAGE), "exec"), names)
    return names["Damped"]


def two_groups(n=N):
    rng = np.random.default_rng(3)
    true = np.where(rng.random((n, 1)) < 0.4, -2.0, 2.0) + rng.normal(size=(n, 2))
    error = rng.uniform(0.2, 1.0, size=(n, 2))
    return true + error * rng.normal(size=(n, 2)), error


START = xd.Mixture([0.5, 0.5], [[-1.0, -1.0], [1.0, 1.0]], [np.eye(2), np.eye(2)])


def same(a, b, **close):
    for name in ("weights", "means", "covariances"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), **close)


def test_its_rows_are_the_rows(method):
    X, error = two_groups()
    for how in (xd.EM(), method()):
        ours = xd.fit(Blocks(X, error), mixture=START, method=how)
        right = xd.fit(X, mixture=START, error=error, method=how)
        assert ours.converged
        same(ours.mixture, right.mixture, rtol=1e-7, atol=1e-7)
    assert ours.mixture.score(Blocks(X, error)) == pytest.approx(ours.loglik, abs=1e-9)


def test_searches_and_starts_of_its_own(method):
    X, error = two_groups()
    for how in (None, method()):
        found = xd.fit(Blocks(X, error), 2, method=how, seed=1)
        assert np.sort(found.mixture.means[:, 0]) == pytest.approx([-2.0, 2.0], abs=0.25)


def values(batches):
    return np.concatenate([batch.x[0].numpy() for batch in batches])


@pytest.mark.parametrize("world", [1, 3])
def test_shuffled_batches_have_every_row_once(world):
    X, error = two_groups(1050)
    source = Blocks(X, error)
    shuffled = source.arranged(64, seed=5)
    passes = [values(b for r in range(world) for b in shuffled.batches(e, rank=r, world=world)) for e in (0, 0, 1)]
    np.testing.assert_array_equal(passes[0], passes[1])
    assert (passes[0] != passes[2]).any()
    for rows in passes:
        np.testing.assert_array_equal(np.sort(rows), np.sort(X[:, 0]))
    sizes = [batch.n for batch in shuffled.batches(0)]
    assert set(sizes[:-1]) == {64}
    assert shuffled.arranged(None, 0) is source


@pytest.mark.parametrize("world", [1, 3])
def test_rows_held_out_are_the_others(world):
    X, error = two_groups()
    train, held = Blocks(X, error).split(0.25, seed=2)
    assert held.rows == pytest.approx(0.25 * N, abs=60)
    assert train.rows + held.rows == N
    parts = [values(b for r in range(world) for b in part.batches(0, rank=r, world=world)) for part in (train, held)]
    assert [len(part) for part in parts] == [train.rows, held.rows]
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.sort(X[:, 0]))
    result = xd.fit(Blocks(X, error), 2, validation=0.25, patience=5, moves="none")
    assert result.validation == pytest.approx(result.loglik, abs=0.3)


def test_a_sample_is_from_all_over():
    X, error = two_groups()
    order = np.argsort(X[:, 0])
    source = Blocks(X[order], error[order])
    sample = source.sample(200, seed=0)
    assert sample.n == 200
    assert float(sample.x[0].mean()) == pytest.approx(X[:, 0].mean(), abs=0.5)
    assert source.sample(10**6, seed=0).n == N
    np.testing.assert_array_equal(source.sample(200, seed=0).x, sample.x)


WORDS = [{}, {"batch_rows": 100}, {"inflation": xd.Inflation()}, {"validation": 0.2}]


@pytest.mark.parametrize("words", WORDS, ids=str)
def test_rows_are_read_once_before_the_first_pass(words):
    """Counts, weights, the frame, the start and every search come from one reading; a stamp looks at one block."""
    source, readings = Blocks(*two_groups()), []
    xd.fit(source, 2, epochs=2, tol=0, callback=lambda record: readings.append(source.read), **words)
    held_out = "validation" in words  # whose rows are gone through in every pass, and have a stamp of their own
    assert readings[0] == N + BLOCK + N + held_out * (BLOCK + N)
    assert readings[1] - readings[0] == N + held_out * N


def test_samples_that_cost_no_pass_are_its_own():
    class Known(Blocks):
        cheap_samples, asked = True, 0

        def sample(self, size, seed):
            self.asked += 1
            return super().sample(size, seed)

    source = Known(*two_groups())
    xd.fit(source, 2, epochs=2)
    assert source.asked > 1


@pytest.mark.slow
def test_minibatches(method):
    X, error = two_groups()
    for how in (xd.EM(step=0.2), xd.SGD(rate=0.02), method(0.2)):
        found = xd.fit(Blocks(X, error), mixture=START, method=how, batch_rows=100, epochs=20, seed=4)
        assert np.sort(found.mixture.means[:, 0]) == pytest.approx([-2.0, 2.0], abs=0.4)


class Enough(Exception):
    pass


@pytest.mark.sampled
@pytest.mark.parametrize("batch_rows", [None, 100])
def test_it_is_resumed_to_the_same_bits(method, batch_rows, tmp_path):
    X, error = two_groups(600)
    settings = {"method": method(0.5), "batch_rows": batch_rows, "epochs": 8, "tol": 0, "validation": 0.2}
    whole = xd.fit(Blocks(X, error), 2, **settings)
    checkpoint = xd.Checkpoint(tmp_path / "own.checkpoint", every=0, resume=True)

    def stop(record):
        if record.epoch == 4:
            raise Enough

    with pytest.raises(Enough):
        xd.fit(Blocks(X, error), 2, checkpoint=checkpoint, callback=stop, **settings)
    resumed = xd.fit(Blocks(X, error), 2, checkpoint=checkpoint, **settings)
    same(resumed.mixture, whole.mixture, rtol=0)
    with pytest.raises(ValueError, match=r"method: .*0\.5.* there, .*0\.4.* here"):
        xd.fit(Blocks(X, error), 2, checkpoint=checkpoint, **{**settings, "method": method(0.4)})


REPEATED = np.repeat(np.arange(4.0)[:, None], 10, axis=0) * np.ones((1, 2))


def test_numerical_trouble_is_met_with_the_prior_that_it_can_have(method):
    found = xd.fit(Blocks(REPEATED), 4, epochs=50, tol=0, method=method())
    assert any("small prior" in note for note in found.notes)
    assert (np.linalg.eigvalsh(found.mixture.covariances) > 0).all()


def test_numerical_trouble_without_a_prior_is_an_error_that_names_the_epoch(method):
    class Stubborn(method):
        def with_prior(self, prior):
            return None

    with pytest.raises(NumericalTrouble, match=r"epoch \d+: .* in float64"):
        xd.fit(Blocks(REPEATED), 4, epochs=50, tol=0, method=Stubborn())


def test_float32_trouble_goes_on_in_float64(method):
    rng = np.random.default_rng(11)
    v = rng.normal(size=(500, 1))
    X = np.hstack([v, v + 3e-6 * rng.normal(size=(500, 1))])
    found = xd.fit(Blocks(X), 2, dtype="float32", method=method(), epochs=30)
    assert any("float64" in note for note in found.notes)


def test_memory_is_known_before_it_starts(method, monkeypatch):
    source = Blocks(*two_groups())
    assert source.pool_bytes(None) == 0
    assert source.pool_bytes(100) == 3 * 8 * N * (2 + 3)
    monkeypatch.setattr(memory, "free", lambda: 10 << 20)
    with pytest.raises(MemoryError, match="use a smaller batch_rows"):
        xd.fit(source, 2, method=method())


def test_a_machine_without_a_gpu(method, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    X, error = two_groups()
    settings = {"mixture": START, "method": method(), "epochs": 20}
    plain = xd.fit(Blocks(X, error), **settings)
    source = Blocks(X, error)
    kept = xd.fit(source, cache="host", **settings)
    same(kept.mixture, plain.mixture, rtol=1e-9, atol=1e-9)
    assert any("kept in host memory" in note for note in kept.notes)
    assert source.passes <= 3  # the survey, a stamp, and keeping them; the 20 passes read nothing
    for words in ({"device": "cuda"}, {"cache": "device"}):
        with pytest.raises(ValueError, match=r"CUDA device|on a GPU"):
            xd.fit(Blocks(X, error), **settings, **words)


def test_what_is_missing_is_said():
    class Half(xd.Source):
        rows = 5

    with pytest.raises(TypeError, match="abstract"):
        Half()


def test_the_protocol(method):
    own, X = method(), two_groups(100)[0]
    state = own.init(START)
    same(own.mixture(state), START, rtol=1e-12)
    again = own.restore(own.init(START), state.tensors())
    same(own.mixture(again), START, rtol=1e-12)
    assert own.left(state) is None
    assert not own.ascends
    assert replace(own, step=0.1).describe() != own.describe()
    estimator = xd.XDGMM(2, method=own, random_state=0, max_iter=50, batch_size=50).fit(X, error=[0.1, 0.1])
    assert estimator.means_.shape == (2, 2)
