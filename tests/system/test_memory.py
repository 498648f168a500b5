"""Memory is known before a fit starts, whoever limits it; a GPU that runs out computes in halves."""

import subprocess
import sys
import textwrap
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import xdeconv as xd
from xdeconv import kernels
from xdeconv.fitting import memory
from xdeconv.kernels import cpu
from xdeconv.rows import halves
from xdeconv.system import memory as room

X = np.random.default_rng(0).normal(size=(500, 2))


def test_too_little_memory_gives_the_figure_and_what_helps(monkeypatch):
    monkeypatch.setattr(memory, "free", lambda: 10 << 20)
    with pytest.raises(MemoryError, match=r"needs 0.13 GiB of memory and 0.01 GiB are free: stream the rows"):
        xd.fit(X, 2, error=[0.1, 0.1])


@pytest.mark.slow
def test_the_figure_grows_with_rows_and_components(caplog):
    figures = []
    for rows, k in ((100, 2), (500, 2), (500, 50)):
        caplog.clear()
        with caplog.at_level("INFO", "xdeconv"):
            xd.fit(X[:rows], k, error=[0.1, 0.1], epochs=1)
        found = [r.args for r in caplog.records if "of memory" in r.getMessage()]
        figures.append(found[0][0])
    assert figures[0] < figures[1] < figures[2]


def test_the_pool_of_an_unshuffled_stream_counts(tmp_path):
    np.save(tmp_path / "rows.npy", np.zeros((300_000, 3)))
    source = xd.open(tmp_path / "rows.npy", ["a", "b", "c"], error=dict.fromkeys("abc"), memory=False)
    assert source.pool_bytes(None) == 0
    assert source.pool_bytes(500) == 3 * 8 * 3 * 300_000
    assert replace(source, table=replace(source.table, shuffled=True)).pool_bytes(500) < 3 * 8 * 3 * 300_000


def test_the_smallest_limit_counts(monkeypatch, tmp_path):
    group = tmp_path / "a" / "b"
    group.mkdir(parents=True)
    for folder, limit, used in ((tmp_path / "a", "5000000", "1000000"), (group, "max", "700000")):
        (folder / "memory.max").write_text(limit + "\n")
        (folder / "memory.current").write_text(used + "\n")
        (folder / "memory.stat").write_text("anon 5\ninactive_file 250\n")
    lines = room._lines
    monkeypatch.setattr(room, "_lines", lambda p: ["0::/a/b"] if str(p) == "/proc/self/cgroup" else lines(p))
    assert room._groups(tmp_path) == [4_000_250]


LIMITED = textwrap.dedent("""
    import resource, sys
    import numpy as np, xdeconv as xd
    from xdeconv.fitting import memory
    X = np.zeros((1000, 2)); X[:, 0] = np.arange(1000); X[:, 1] = X[:, 0] ** 2
    limit, place = sys.argv[1:]
    xd.Mixture([1.0], [[0.0]], [[[1.0]]]).log_prob([[0.0]])
    for _ in range(100):  # a thread that ends meanwhile gives its addresses back
        pages = int(open("/proc/self/statm").read().split()[int(place)]) * resource.getpagesize()
        resource.setrlimit(getattr(resource, limit), (pages + (100 << 20), resource.RLIM_INFINITY))
        if memory.free() <= 100 << 20:
            break
    assert memory.free() <= 100 << 20
    try:
        xd.fit(X, 2, error=[0.1, 0.1], epochs=1)
    except MemoryError as problem:
        print(problem)
""")


@pytest.mark.processes
@pytest.mark.parametrize(("limit", "place"), [("RLIMIT_AS", "0"), ("RLIMIT_DATA", "5")])
def test_a_limit_of_addresses_or_data_is_known(limit, place):
    words = [sys.executable, "-c", LIMITED, limit, place]
    found = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert "GiB are free: stream the rows" in found.stdout, found.stderr


MAPPED = textwrap.dedent("""
    import re, sys
    from xdeconv.cli import main
    sys.argv = ["xdeconv", "info", sys.argv[1]]
    try:
        main()
    except SystemExit:
        pass
    spans = [line.split()[:2] for line in open("/proc/self/maps") if len(line.split()) == 5]
    sizes = [int(b, 16) - int(a, 16) for a, b in (span.split("-") for span, way in spans if way.startswith("rw"))]
    print("largest", max(sizes))
""")


@pytest.mark.processes
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="maps are Linux's")
def test_a_command_takes_no_gibibyte_before_it_needs_it(tmp_path):
    """Arrow did, for its first number: of a limit of 2 GiB (ulimit -d) half was gone."""
    pq.write_table(pa.table({"x": [1.0, 2.0]}), tmp_path / "rows.parquet")
    words = [sys.executable, "-c", MAPPED, str(tmp_path / "rows.parquet")]
    found = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert int(found.stdout.split()[-1]) < 256 << 20, found.stderr


@pytest.mark.sampled
@pytest.mark.parametrize("most", [499, 100, 1])
def test_a_gpu_that_runs_out_computes_in_halves(most, monkeypatch, caplog):
    """The CPU kernel stands for a GPU that has room for so many rows."""
    mixture = xd.Mixture([0.5, 0.5], [[0.0, 0.0], [1.0, 1.0]], [np.eye(2), np.eye(2)])
    batch = xd.Batch.from_arrays(X, error=np.full((500, 2), 0.1), weight=np.linspace(0.1, 1.0, 500))
    parameters = mixture.tensors()
    whole = [f(*parameters, batch) for f in (kernels.accumulate, kernels.log_prob, kernels.log_joint)]
    for name in ("accumulate", "log_prob", "log_joint"):
        monkeypatch.setattr(cpu, name, _limited(getattr(cpu, name), most))
    halves.say_halved.cache_clear()
    parts = [f(*parameters, batch) for f in (kernels.accumulate, kernels.log_prob, kernels.log_joint)]
    torch.testing.assert_close(parts[0].packed, whole[0].packed, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(parts[1], whole[1], rtol=1e-12, atol=0.0)
    torch.testing.assert_close(parts[2], whole[2], rtol=1e-12, atol=0.0)
    assert "computed in parts of 250 rows" in caplog.text


def _limited(function, most):
    def run(log_weights, means, covariances, batch, *options):
        if batch.n > most:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return function(log_weights, means, covariances, batch, *options)

    return run


def test_one_row_that_does_not_fit_is_an_error(monkeypatch):
    monkeypatch.setattr(cpu, "log_prob", _limited(cpu.log_prob, 0))
    with pytest.raises(torch.cuda.OutOfMemoryError):
        xd.Mixture([1.0], [[0.0, 0.0]], [np.eye(2)]).log_prob(X[:4])
