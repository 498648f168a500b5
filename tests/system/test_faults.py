"""Full disks, two writers, damaged and hostile files: what was there stays whole, and every error is clear."""

import contextlib
import dataclasses
import errno
import json
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import xdeconv as xd
from xdeconv.catalog.readers import open_table
from xdeconv.catalog.store import prepare
from xdeconv.fitting.state import load_state
from xdeconv.system.files import locked, save_tensors

X = np.random.default_rng(0).normal(size=(60, 2))
MIXTURE = xd.Mixture([0.5, 0.5], [[0.0, 0.0], [1.0, 1.0]], [np.eye(2), np.eye(2)], labels=["a", "b"])


def full_disk(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_model(call, tmp_path, monkeypatch):
    path = tmp_path / "model.safetensors"
    MIXTURE.save(path)
    before = path.read_bytes()
    monkeypatch.setattr(os, call, full_disk)
    with pytest.raises(OSError, match=r"could not write .*model.safetensors: No space left on device. What was there"):
        MIXTURE.with_(labels=["c", "d"]).save(path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]


def test_a_full_disk_while_a_checkpoint_is_written(tmp_path, monkeypatch):
    path = tmp_path / "fit.checkpoint"
    settings_ = {"error": [0.3, 0.3], "epochs": 8, "tol": 0, "checkpoint": xd.Checkpoint(path, 0)}
    whole = xd.fit(X, 2, **{**settings_, "checkpoint": None})
    kept = []

    def fill(record):
        if record.epoch == 3:
            kept.append(path.read_bytes())
            monkeypatch.setattr(os, "fsync", full_disk)

    with pytest.raises(OSError, match=r"could not write .*fit.checkpoint: No space left"):
        xd.fit(X, 2, callback=fill, **settings_)
    monkeypatch.undo()
    assert path.read_bytes() == kept[0]
    resumed = xd.fit(X, 2, **{**settings_, "checkpoint": xd.Checkpoint(path, resume=True)})
    np.testing.assert_array_equal(resumed.mixture.means, whole.mixture.means)


def test_a_file_size_limit_leaves_the_old_model(tmp_path):
    """The same with no patches: the system itself refuses to write more than a kilobyte."""
    path = tmp_path / "model.safetensors"
    MIXTURE.save(path)
    before = path.read_bytes()
    k = 40
    large = xd.Mixture(np.full(k, 1 / k), np.zeros((k, 2)), np.tile(np.eye(2), (k, 1, 1)))
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, limit[1]))
    try:
        with pytest.raises(OSError, match="What was there is unchanged"):
            large.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, ignored)
    assert path.read_bytes() == before


def test_two_fits_of_one_checkpoint_are_refused(tmp_path):
    path = tmp_path / "fit.checkpoint"
    began, go_on = threading.Event(), threading.Event()

    def wait(record):
        began.set()
        go_on.wait(30)

    def first():
        xd.fit(X, 2, error=[0.3, 0.3], epochs=2, checkpoint=path, callback=wait)

    thread = threading.Thread(target=first)
    thread.start()
    assert began.wait(60)
    try:
        with pytest.raises(OSError, match=r"another fit is writing .*fit.checkpoint"):
            xd.fit(X, 2, error=[0.3, 0.3], epochs=2, checkpoint=path)
    finally:
        go_on.set()
        thread.join()
    xd.fit(X, 2, error=[0.3, 0.3], epochs=2, checkpoint=path)
    assert [p.name for p in tmp_path.iterdir()] == ["fit.checkpoint"]


def hold(path, ready):
    with locked(path):
        ready.send(True)
        threading.Event().wait(60)


def test_a_lock_file_that_its_last_owner_just_unlinked_is_no_lock(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    flock, calls = fcntl.flock, []

    def unlinked_in_between(handle, how):
        calls.append(handle)
        if len(calls) == 1:
            (tmp_path / ".x.lock").unlink()
        if len(calls) == 2:
            (tmp_path / ".x.lock").unlink()
            (tmp_path / ".x.lock").write_text("another owner's")
        flock(handle, how)

    monkeypatch.setattr(fcntl, "flock", unlinked_in_between)
    with locked(tmp_path / "x"):
        assert len(calls) == 3
        with pytest.raises(BlockingIOError), locked(tmp_path / "x"):
            pass
    assert not (tmp_path / ".x.lock").exists()


@pytest.mark.processes
def test_a_killed_process_lets_go_of_its_lock(tmp_path):
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    process = context.Process(target=hold, args=(tmp_path / "x", there))
    process.start()
    assert here.recv()
    with pytest.raises(BlockingIOError, match="another fit is writing"), locked(tmp_path / "x"):
        pass
    process.kill()
    process.join()
    with locked(tmp_path / "x"):
        pass


# Damaged and hostile files


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """One file of each kind that can be loaded, and how."""
    folder = tmp_path_factory.mktemp("originals")
    MIXTURE.save(folder / "model")
    xd.fit(X, 2, error=[0.3, 0.3], epochs=2, checkpoint=folder / "checkpoint")
    (folder / "rows.csv").write_text("x,y\n" + "\n".join(f"{a},{b}" for a, b in X))
    prepare(folder / "rows.csv", folder / "store")
    return folder


def read_store(folder):
    table = open_table(folder)
    for piece in table.pieces:
        for block in table.read(piece, table.columns):
            block.validate(full=True)


def damaged(content: bytes, cut: int, flips) -> bytes:
    data = bytearray(content[: max(0, len(content) - cut)])
    for place, bit in flips:
        if data:
            data[place % len(data)] ^= 1 << bit
    return bytes(data)


DAMAGE = {
    "cut": st.one_of(st.just(0), st.integers(1, 4000)),
    "flips": st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 7)), min_size=1, max_size=3),
}
RELAXED = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


@pytest.mark.parametrize("name", ["model", "checkpoint"])
def test_damaged_files_are_errors(name, originals, tmp_path):
    content, load = (originals / name).read_bytes(), {"model": xd.load, "checkpoint": load_state}[name]

    @RELAXED
    @given(**DAMAGE)
    def run(cut, flips):
        data = damaged(content, cut, flips)
        (tmp_path / "x").write_bytes(data)
        if data == content:
            return
        with pytest.raises((ValueError, OSError)):
            load(tmp_path / "x")

    run()


@pytest.mark.parametrize("name", ["manifest.json", "shard"])
def test_damaged_stores_are_errors_or_read_alike(name, originals, tmp_path):
    """A manifest or a shard with a flipped bit: an error, or rows that Arrow calls valid; never a crash."""
    shutil.copytree(originals / "store", tmp_path / "store")
    target = next(p for p in (tmp_path / "store").iterdir() if (p.name == name) == (name == "manifest.json"))
    content = target.read_bytes()

    @RELAXED
    @given(**DAMAGE)
    def run(cut, flips):
        target.write_bytes(damaged(content, cut, flips))
        with contextlib.suppress(ValueError, OSError):
            read_store(tmp_path / "store")

    run()


@pytest.mark.slow
def test_any_json_is_a_manifest_or_an_error(tmp_path):
    values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=6,
    )
    keys = st.fixed_dictionaries(
        {"format": st.just("xdeconv store"), "version": st.sampled_from([1, 2])},
        optional={"shards": values | st.lists(st.fixed_dictionaries({"file": values, "bytes": values, "rows": values})),
                  "batch_rows": values, "columns": values},
    )  # fmt: skip

    @RELAXED
    @given(keys)
    def run(manifest):
        (tmp_path / "manifest.json").write_text(json.dumps(manifest))
        with contextlib.suppress(ValueError, OSError):
            read_store(tmp_path)

    run()


@pytest.mark.parametrize(
    ("arrays", "facts"),
    [
        ({}, {}),
        ({"weights": np.ones(1)}, {"labels": None}),
        ({"weights": np.ones(2), "means": np.zeros((1, 2)), "covariances": np.eye(2)[None]}, {}),
        ({"weights": np.ones(1), "means": np.zeros((1, 2)), "covariances": -np.eye(2)[None]}, {}),
        ({"weights": np.ones(1), "means": np.full((1, 2), np.nan), "covariances": np.eye(2)[None]}, {}),
        ({"weights": np.ones(1), "means": np.zeros((1, 2)), "covariances": np.eye(2)[None]}, [1]),
        ({"weights": np.ones(1), "means": np.zeros((1, 2)), "covariances": np.eye(2)[None]}, {"labels": 3}),
        ({"weights": np.ones(1), "means": np.zeros((1, 2)), "covariances": np.eye(2)[None]}, {"meta": 3}),
    ],
)
def test_whole_files_of_nonsense_are_errors(arrays, facts, tmp_path):
    for kind, load in (("mixture", xd.load), ("checkpoint", load_state)):
        save_tensors(tmp_path / "x", kind, arrays, facts)
        with pytest.raises(ValueError, match="damaged"):
            load(tmp_path / "x")


def test_a_checkpoint_with_another_state_is_an_error(tmp_path):
    path = tmp_path / "fit.checkpoint"
    xd.fit(X, 2, error=[0.3, 0.3], epochs=2, tol=0, checkpoint=path)
    found = load_state(path)
    for learner in ({}, {**found.learner, "trial.means": found.learner["trial.means"][:1]}):
        dataclasses.replace(found, learner=learner, finished=False, epoch=1).save(path)
        with pytest.raises(ValueError, match="is damaged: its state has no"):
            xd.fit(X, 2, error=[0.3, 0.3], epochs=2, tol=0, checkpoint=xd.Checkpoint(path, resume=True))


def test_nothing_is_unpickled():
    """No module of the library names pickle, and arrays are never loaded with it."""
    source = Path(xd.__file__).parent
    for path in source.rglob("*.py"):
        text = path.read_text()
        for word in ("import pickle", "allow_pickle=True", "torch.load(", "joblib", "marshal", "eval(", "exec("):
            assert word not in text, f"{path}: {word}"


def test_a_hostile_numpy_file_is_refused(tmp_path):
    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "exploded"),)

    np.save(tmp_path / "rows.npy", np.array([Bomb()], dtype=object), allow_pickle=True)
    with pytest.raises((ValueError, OSError)):
        xd.open(tmp_path / "rows.npy", ["x"]).load()
    assert not (tmp_path / "exploded").exists()


COMMAND = textwrap.dedent("""
    import sys
    from xdeconv.cli import main
    sys.argv = ["xdeconv", *sys.argv[1:]]
    main()
""")


@pytest.mark.processes
def test_the_command_says_who_writes(tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("x,y\n" + "\n".join(f"{a},{b}" for a, b in X))
    out = tmp_path / "model.safetensors"
    with locked(out):
        found = subprocess.run(
            [sys.executable, "-c", COMMAND, "fit", str(rows), "-k", "2", "--columns", "x,y", "-o", str(out)],
            capture_output=True, text=True, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False,
        )  # fmt: skip
    assert found.returncode == 3
    assert "another fit is writing" in found.stderr
    assert not out.exists()
