"""Minibatch updates that are recorded and replayed, with a stand-in for CUDA's graphs where there is no GPU."""

import contextlib

import numpy as np
import pytest
import torch

import xdeconv as xd
from xdeconv.fitting.minibatches import Recording, Steps, side_stream
from xdeconv.kernels.options import Options
from xdeconv.methods import Averaged

CPU = torch.device("cpu")
METHODS = [xd.EM(step=0.3), xd.SGD(rate=0.02), Averaged(xd.EM(step=0.3)), Averaged(xd.SGD(rate=0.02))]
START = xd.Mixture([0.5, 0.5], [[-1.0], [1.0]], [[[1.0]], [[1.0]]])


class Stream:
    def __init__(self, *_):
        pass

    def wait_stream(self, _):
        pass


@pytest.fixture
def graphs(monkeypatch):
    """CUDA as far as a recording needs it; what a replay does again is put into ``graphs["replay"]``."""
    again = {}

    class Graph:
        def replay(self):
            again["replay"]()

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", lambda *_, **__: contextlib.nullcontext())
    return again


@pytest.mark.parametrize("method", METHODS, ids=["em", "sgd", "averages of em", "averages of sgd"])
def test_updates_that_cannot_be_recorded_are_computed(method, graphs, monkeypatch, caplog):
    class Refusing:
        def __init__(self, *_, **__):
            pass

        def __enter__(self):
            raise RuntimeError("operation not permitted when stream is capturing\nmore")

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(torch.cuda, "graph", Refusing)
    rows = np.random.default_rng(0).normal(size=(200, 1))
    batches = xd.Batch.from_arrays(rows, error=np.ones((200, 1))).chunks(50)
    ends = []
    for recording in (None, Recording(50)):
        steps = Steps(method, 200.0, Options(), CPU, recording=recording)
        steps.begin()
        for state in steps.run(method.init(START, CPU), iter(batches)):
            last = method.mixture(state)
        ends.append((last.means, float(steps.rows), float(steps.loglik)))
    np.testing.assert_array_equal(ends[1][0], ends[0][0])
    assert ends[1][1:] == ends[0][1:]
    assert "operation not permitted" in caplog.text
    assert "more" not in caplog.text.partition("(")[2].partition(")")[0]


def test_warming_up_takes_one_stream(graphs, monkeypatch):
    """cuBLAS keeps 32 MiB for every stream that it has seen, for good."""
    made = []

    class Counted(Stream):
        def __init__(self, *_):
            made.append(self)

    monkeypatch.setattr(torch.cuda, "Stream", Counted)
    side_stream.cache_clear()
    graphs["replay"] = lambda: None
    batch = xd.Batch.from_arrays(np.zeros((50, 1)), error=np.ones((50, 1)))
    for _ in range(3):
        method = xd.EM(step=0.3)
        Steps(method, 50.0, Options(), CPU, recording=Recording(50)).step(method.init(START, CPU), batch)
    side_stream.cache_clear()
    assert len(made) == 1


@pytest.mark.parametrize("method", METHODS, ids=["em", "sgd", "averages of em", "averages of sgd"])
def test_replayed_updates_are_those_that_are_computed(method, graphs):
    rows = np.random.default_rng(0).normal(size=(210, 1))
    batches = xd.Batch.from_arrays(rows, error=np.linspace(0.1, 1.0, 210)[:, None]).chunks(50)  # the last one is odd
    plain = Steps(method, 210.0, Options(), CPU)
    recorded = Steps(method, 210.0, Options(), CPU, recording=Recording(50))
    graphs["replay"] = lambda: recorded.recording._update(recorded)
    ends = []
    for steps in (plain, recorded):
        steps.begin()
        for state in steps.run(method.init(START, CPU), iter(batches)):
            last = method.mixture(state)
        ends.append(last)
    np.testing.assert_allclose(ends[1].means, ends[0].means, rtol=1e-12)
    np.testing.assert_allclose(ends[1].covariances, ends[0].covariances, rtol=1e-12)
    assert float(recorded.rows) == float(plain.rows) == 210
    assert float(recorded.loglik) == pytest.approx(float(plain.loglik), rel=1e-12)
