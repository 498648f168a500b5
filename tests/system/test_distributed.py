"""Several processes on the CPU: the same mixtures as one, a rank that dies or hangs, and restarts by torchrun."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import xdeconv as xd
from ranks import CASES
from xdeconv.catalog import stream
from xdeconv.fitting.state import load_state
from xdeconv.simulate import _gaia as simulate

HERE = Path(__file__).parents[1]
pytestmark = pytest.mark.processes


def port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def environment(**more):
    return {**os.environ, "OMP_NUM_THREADS": "1", **{name: str(value) for name, value in more.items()}}


def ranks(arguments, world=2, **more):
    """The processes of a command."""
    known = {"WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port()}
    return [
        subprocess.Popen([sys.executable, *map(str, arguments)], env=environment(RANK=r, LOCAL_RANK=r, **known),
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
        for r in range(world)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def stars(tmp_path_factory):
    path = tmp_path_factory.mktemp("ranks") / "stars.parquet"
    pq.write_table(simulate.gaia(6000, seed=2).to_table(), path, row_group_size=500)
    return path


@pytest.fixture(scope="module")
def together(stars, tmp_path_factory):
    """A folder with what two ranks found."""
    folder = tmp_path_factory.mktemp("together")
    for process in ranks([HERE / "ranks.py", stars, folder]):
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
    return folder


def results(folder, name, rank=0):
    mixture = xd.load(folder / f"{name}.{rank}.safetensors")
    return mixture, np.load(folder / f"{name}.{rank}.npy")


@pytest.mark.parametrize("name", CASES)
def test_all_ranks_have_the_same_mixture(together, name):
    (one, scores), (other, others) = (results(together, name, rank) for rank in (0, 1))
    for part in ("weights", "means", "covariances"):
        assert np.array_equal(getattr(one, part), getattr(other, part))
    assert np.array_equal(scores, others, equal_nan=True)


@pytest.mark.parametrize("name", ["batch", "stream", "held", "moves", "background", "inflation", "cut"])
def test_two_ranks_equal_one_process(together, stars, name):
    found, scores = results(together, name)
    alone = CASES[name](stars)
    for part in ("weights", "means", "covariances"):
        assert np.allclose(getattr(found, part), getattr(alone.mixture, part), rtol=1e-9, atol=1e-9)
    assert found.background_weight == pytest.approx(alone.mixture.background_weight, rel=1e-9)
    if found.inflation is not None:
        np.testing.assert_allclose(found.inflation.values, alone.mixture.inflation.values, rtol=1e-8)
    assert abs(scores[0] - alone.loglik) < 1e-10
    if alone.validation is not None:
        assert abs(scores[1] - alone.validation) < 1e-10


def test_ranks_draw_chances_of_their_own_rows(together, stars):
    """Other draws, so the mixture differs by a part of its standard errors; all ranks have the same."""
    _, scores = results(together, "function")
    assert abs(scores[0] - CASES["function"](stars).loglik) < 2e-3


def test_minibatches_are_unions(together, stars):
    """Other rows share a batch, so the mixture differs a little; steps and step sizes are those of one process."""
    _, scores = results(together, "minibatch")
    assert abs(scores[0] - CASES["minibatch"](stars).loglik) < 0.02


def command(stars, folder, *more):
    columns = ["--columns", "parallax,pmra,pmdec", "--where", "astrometric_params_solved > 3", "-k", "3"]
    kept = ["-o", folder / "model.safetensors", "--checkpoint", folder / "saved", "--checkpoint-seconds", "0"]
    return ["-m", "xdeconv", "fit", stars, *columns, *kept, "--moves", "none", "--device", "cpu", *more]


ENDLESS = ("--tol", "0", "--epochs", "100000")


def until_saved(path):
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert path.exists()


@pytest.mark.parametrize(("harm", "limit"), [(signal.SIGKILL, 600), (signal.SIGSTOP, 3)])
def test_a_lost_rank_stops_the_others(stars, tmp_path, harm, limit):
    first, other = ranks(command(stars, tmp_path, *ENDLESS, "--rank-timeout", limit))
    until_saved(tmp_path / "saved")
    other.send_signal(harm)
    began = time.monotonic()
    _, err = first.communicate(timeout=30)
    other.kill()
    assert other.communicate() == ("", "")
    assert time.monotonic() - began < 15
    assert first.returncode == 3
    assert "rank 0 of 2 stops: another rank has ended or not answered in time" in err
    assert "--resume" in err
    assert "Traceback" not in err
    if harm == signal.SIGKILL:  # one process goes on where two stopped
        saved = load_state(tmp_path / "saved").epoch
        more = command(stars, tmp_path, "--tol", "0", "--epochs", saved + 1, "--resume")
        subprocess.run([sys.executable, *map(str, more)], check=True, capture_output=True, env=environment())
        history = xd.load(tmp_path / "model.safetensors").meta["history"]
        assert len(history["epoch"]) == saved + 1


def test_torchrun_restarts_from_the_checkpoint(stars, tmp_path):
    run = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1", "--master-port", port()]
    arguments = [*run, *command(stars, tmp_path, "--tol", "0", "--epochs", "400", "--validation", "0")]
    agent = subprocess.Popen(
        [sys.executable, *map(str, arguments)], env=environment(), stderr=subprocess.PIPE, text=True
    )
    until_saved(tmp_path / "saved")
    workers = [p for p in psutil.Process(agent.pid).children(recursive=True) if "fit" in p.cmdline()]
    workers[-1].kill()
    _, err = agent.communicate(timeout=60)
    assert agent.returncode == 0, err
    found = xd.load(tmp_path / "model.safetensors")
    assert found.meta["epochs"] == 400
    assert err.count("stopped after 400 epochs") == 1
    assert err.count("rows of") == 2  # said once by each start of rank 0


OTHERS = """
import os, sys
import numpy as np
import xdeconv as xd
from xdeconv.system.ranks import process_group, rank

with process_group("cpu", timeout=60):
    X = np.random.default_rng(0).normal(size=(100, 2))
    if sys.argv[1] == "values":
        X[3, 1] += rank()
    elif sys.argv[1] == "rows":
        X = X[rank():]
    words = {"epochs": 2, "seed": 0, "checkpoint": None}
    if sys.argv[1] in ("seed", "epochs", "patience"):
        words[sys.argv[1]] = 1 + rank()
    if sys.argv[1] == "resume":
        words["checkpoint"] = xd.Checkpoint(sys.argv[2], resume=rank() == 0)
    if sys.argv[1] == "function":
        words["selection"] = (lambda limit: lambda X: X[:, 0] > limit)(-9 - rank())
    if sys.argv[1] == "method" and rank():
        words["method"] = xd.EM(prior=xd.Prior(w=0.1))
    words["error"] = [0.1, 0.1]
    if sys.argv[1] == "features":
        table = {"x": X[:, 0], "y": X[:, 1], "x_error": X[:, 0] ** 2, "y_error": X[:, 1] ** 2}
        X, words["error"] = xd.open(table, ["x", "y"][rank() :], memory=False), None
    if sys.argv[1] == "damaged":
        words["checkpoint"] = xd.Checkpoint(sys.argv[2], resume=True)
    try:
        xd.fit(X, 2, device="cpu", validation=0.2, **words)
    except ValueError as problem:
        print(problem)
"""


@pytest.mark.parametrize(
    "what", ["values", "rows", "seed", "epochs", "patience", "resume", "function", "method", "features"]
)
def test_ranks_that_hold_different_arrays_are_refused(what, tmp_path):
    for process in ranks(["-c", OTHERS, what, tmp_path / "saved"]):
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert "the ranks hold different rows or have different settings" in out


def test_a_damaged_checkpoint_is_said_by_every_rank(tmp_path):
    (tmp_path / "saved").write_bytes(b"garbage" * 100)
    for process in ranks(["-c", OTHERS, "damaged", tmp_path / "saved"]):
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert "is truncated, damaged or not an xdeconv checkpoint" in out


READS = """
import json, sys
from collections import Counter
import torch
import xdeconv as xd
from xdeconv.catalog import stream
from xdeconv.catalog.readers.parquet import ParquetTable
from xdeconv.system.ranks import process_group, rank

torch.set_num_threads(1)
read, groups, phases = ParquetTable.read, [], []

def noted(self, piece, columns, floats=()):
    groups.append(piece.index)
    return read(self, piece, columns, floats)

ParquetTable.read = noted
words, held = json.loads(sys.argv[2]), json.loads(sys.argv[3])
stream.HELD_BYTES = 200_000  # rows held out take less, all rows more
with process_group("cpu", timeout=60):
    source = xd.open(sys.argv[1], ["parallax", "pmra", "pmdec"], **words)
    result = xd.fit(source, 3, moves="none", epochs=3, tol=0, device="cpu", method=xd.EM(accelerate=False), **held,
                    callback=lambda _: (phases.append(sorted(groups)), groups.clear()))
    phases.append(sorted(groups))
    print("READS", json.dumps([phases, result.mixture.means.tolist()]))
"""


def read_by_two(path, words, held):
    """The row groups that each rank read, until the first pass was done and in each pass after it, and the means."""
    told = []
    for process in ranks(["-c", READS, path, json.dumps(words), json.dumps(held)]):
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        told.append(json.loads(next(line for line in out.splitlines() if line.startswith("READS"))[5:]))
    (first, means), (other, others) = told
    assert means == others
    return first, other, np.array(means)


@pytest.mark.parametrize(
    ("words", "held", "before"),
    [({"memory": False}, {"cache": "none"}, 1), ({"memory": False}, {"cache": "host"}, 1),
     ({}, {"validation": 0.2}, 1), ({"where": "parallax > -0.5"}, {}, 1), ({"bad_rows": "drop"}, {}, 1),
     ({"bad_rows": "drop"}, {"validation": 0.2}, 2)],
)  # fmt: skip
def test_ranks_read_row_groups_that_no_other_reads(stars, words, held, before, monkeypatch):
    """Each surveys its half before the first pass, and reads its half in each pass, or once."""
    first, other, means = read_by_two(stars, words, held)
    everything = list(range(12))
    assert sorted(first[0] + other[0]) == sorted((before + 1) * everything)  # the survey, and one pass or its keeping
    assert len(first[0]) == len(other[0])
    for mine, theirs in zip(first[:3], other[:3], strict=True):
        assert not set(mine) & set(theirs)
    for mine, theirs in list(zip(first, other, strict=True))[1:3]:
        assert sorted(mine + theirs) == (everything if held.get("cache") != "host" else [])
    if held.get("cache") == "host":  # of a part that is held no sample can be taken: the start is another
        return
    monkeypatch.setattr(stream, "HELD_BYTES", 200_000)
    source = xd.open(stars, ["parallax", "pmra", "pmdec"], **words)
    alone = xd.fit(source, 3, moves="none", epochs=3, tol=0, device="cpu", method=xd.EM(accelerate=False), **held)
    np.testing.assert_allclose(means, alone.mixture.means, rtol=1e-9)


TOUCHED = """
import sys
import torch
import xdeconv as xd
from xdeconv.system.ranks import process_group, rank

torch.set_num_threads(1)
with process_group("cpu", timeout=60):
    source = xd.open(sys.argv[1], ["parallax", "pmra"], memory=False, where="parallax > 0")
    if rank() == 0:
        print(source.rows, "rows")
    print(xd.fit(source, 2, moves="none", epochs=2, tol=0, device="cpu").mixture.means.tolist())
"""


def test_one_rank_may_have_counted_the_rows_before(stars):
    """It looked at no row again, and what it asked the other met what the other asked it."""
    said = [process.communicate(timeout=120) for process in ranks(["-c", TOUCHED, stars])]
    means = [out.strip().splitlines()[-1] for out, err in said if not err]
    assert len(means) == 2, said
    assert means[0] == means[1]


def test_a_bad_row_that_one_rank_finds_ends_all(tmp_path):
    table = simulate.gaia(6000, seed=2).to_table()
    bad = np.asarray(table["pmra_error"]).copy()
    observed = np.flatnonzero(~np.isnan(np.asarray(table["pmra"])))
    row = int(observed[observed > 700][0])  # in the second row group, which the second rank reads
    bad[row] = -1.0
    path = tmp_path / "bad.parquet"
    index = table.column_names.index("pmra_error")
    pq.write_table(table.set_column(index, "pmra_error", pa.array(bad)), path, row_group_size=500)
    ended = [(process.communicate(timeout=120)[1], process.returncode)
             for process in ranks(["-c", READS, path, "{}", "{}"])]  # fmt: skip
    for err, code in ended:
        assert code  # 1, or an abort of gloo's threads after it
        assert f"row {row} in row group 1: pmra_error is negative" in err


ERRORS = """
import sys
import numpy as np
import torch
import xdeconv as xd
from xdeconv.system.ranks import process_group

torch.set_num_threads(1)
with process_group("cpu", timeout=60):
    source = xd.open(sys.argv[1], ["parallax", "pmra", "pmdec"], memory=False, where="astrometric_params_solved > 3")
    found = xd.errors(source, xd.load(sys.argv[2]), device="cpu")
    print("ERRORS", *found.weights, *found.means.ravel(), found.background_weight, found.nu)
"""


def test_errors_of_two_ranks_are_those_of_one_process(stars, tmp_path):
    """Of a stream, with a background and tails, to the last bits that the order of sums leaves."""
    rows = xd.open(stars, ["parallax", "pmra", "pmdec"], where="astrometric_params_solved > 3")
    box = xd.Uniform([-50.0, -500.0, -500.0], [50.0, 500.0, 500.0])
    mixture = xd.fit(rows, 2, background=box, tails=xd.StudentT(), epochs=30, device="cpu").mixture
    mixture.save(tmp_path / "model.safetensors")
    alone = xd.errors(rows, mixture, device="cpu")
    expected = [*alone.weights, *alone.means.ravel(), alone.background_weight, alone.nu]
    assert min(expected) > 0
    for process in ranks(["-c", ERRORS, stars, tmp_path / "model.safetensors"]):
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        found = next(line for line in out.splitlines() if line.startswith("ERRORS"))
        np.testing.assert_allclose(np.array(found.split()[1:], dtype=float), expected, rtol=1e-6)
