"""The adapters of peers, where something here can stand for them."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from benchmarks.peers.worker import Enough, Record, bovy, xdeconv64

import xdeconv as xd
from xdeconv.compat.bovy import extreme_deconvolution


def test_passes_of_bovys_function_are_those_of_plain_em(monkeypatch):
    """Ours with the same signature stands for it: three calls of one pass each are three EM passes."""
    monkeypatch.setitem(
        sys.modules, "extreme_deconvolution", SimpleNamespace(extreme_deconvolution=extreme_deconvolution)
    )
    rng = np.random.default_rng(0)
    X, S = rng.normal(size=(300, 2)), np.tile(0.1 * np.eye(2), (300, 1, 1))
    start = np.full(2, 0.5), np.array([[-1.0, 0.0], [1.0, 0.0]]), np.stack([np.eye(2)] * 2)
    both = []
    for peer in (bovy, xdeconv64):
        record = Record(3, 1e9)
        with pytest.raises(Enough):
            peer(X, S, start, record)
        both.append(record.found)
    for theirs, ours in zip(*both, strict=True):
        for a, b in zip(theirs, ours, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    assert start[0].tolist() == [0.5, 0.5]


def test_a_flow_without_its_package_says_what_to_install(monkeypatch):
    from benchmarks.peers import flow

    monkeypatch.setitem(sys.modules, "zuko", None)
    with pytest.raises(SystemExit, match="pip install zuko"):
        flow.NoisyFlow(2)
    assert isinstance(flow.CASES["clusters"]().train, xd.Batch)
