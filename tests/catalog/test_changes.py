"""Files that change, shrink, disagree or are prepared twice: an error that names the file, never other numbers."""

import json
import multiprocessing
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_readers import WRITERS

import xdeconv as xd
from catalogues import FEATURES, arrow_table, gaia_like
from xdeconv.catalog import runs
from xdeconv.catalog import store as making
from xdeconv.catalog._open import open as open_catalog
from xdeconv.catalog.readers import ReadError, open_table
from xdeconv.catalog.readers.parquet import ParquetTable
from xdeconv.catalog.readers.store import manifest_checksum
from xdeconv.catalog.store import prepare
from xdeconv.catalog.transforms import Differenced, Hook, Transform

FILES = [write for write in WRITERS if write.__name__ not in ("write_directory", "write_hats")]


def changed(path: Path) -> None:
    """Other contents of the same size, later."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    before = path.stat().st_mtime_ns
    path.write_bytes(bytes(content))
    os.utime(path, ns=(before + 1_000_000, before + 1_000_000))


def rows(source):
    return sum(batch.n for batch in source.batches(0))


@pytest.mark.parametrize("write", FILES, ids=lambda f: f.__name__.removeprefix("write_"))
def test_a_file_that_changed_since_it_was_opened_is_refused(write, tmp_path):
    path = write(tmp_path)
    source = open_catalog(path, FEATURES, memory=False)
    assert rows(source) == 400
    changed(path)
    with pytest.raises(ReadError, match=rf"{path.name} cannot be read: it has changed since it was opened"):
        rows(source)
    with pytest.raises(ReadError, match="has changed"):
        source.stamp()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
@pytest.mark.parametrize("write", WRITERS, ids=lambda f: f.__name__.removeprefix("write_"))
def test_no_file_stays_open_after_it_was_read(write, tmp_path):
    source = open_catalog(write(tmp_path), FEATURES, memory=False)
    assert rows(source) == 400
    held = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    assert not [name for name in held if name.startswith(str(tmp_path))]


def test_a_fit_stops_when_its_file_changes(tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(arrow_table(gaia_like(3000)), path)

    def change(epoch):
        if epoch.epoch == 1:
            pq.write_table(arrow_table(gaia_like(3000, seed=1)), path)

    source = open_catalog(path, ["parallax", "pmra"], memory=False)
    with pytest.raises(ReadError, match=r"rows\.parquet cannot be read: it has changed"):
        xd.fit(source, 2, method=xd.EM(), epochs=4, tol=0, callback=change, cache="none")


@pytest.mark.parametrize("write", FILES, ids=lambda f: f.__name__.removeprefix("write_"))
def test_stamps_are_json_and_tell_contents_and_recipes_apart(write, tmp_path):
    path = write(tmp_path)
    stamp = open_catalog(path, FEATURES).stamp()
    assert json.loads(json.dumps(stamp)) == stamp
    assert stamp == open_catalog(path, FEATURES).stamp()
    assert stamp["files"][0]["size"] == path.stat().st_size
    assert stamp != open_catalog(path, FEATURES, where="ruwe < 1").stamp()
    assert stamp != open_catalog(path, FEATURES, error={"parallax": 0.1}).stamp()
    assert stamp != open_catalog(path, FEATURES[:3]).stamp()
    time = path.stat().st_mtime_ns
    content = bytearray(path.read_bytes())
    content[: len(content) // 20] = bytes(len(content) // 20)
    path.write_bytes(bytes(content))
    os.utime(path, ns=(time, time))
    try:
        found = open_catalog(path, FEATURES).stamp()
    except (OSError, ValueError):
        return  # refused at once
    assert found["files"] != stamp["files"]


class Raised(Transform):
    """A transform that a user wrote."""

    inputs, outputs, units = ("parallax",), ("power",), ("",)

    def __init__(self, by):
        self.by = by

    def __call__(self, columns):
        value = columns["parallax"]
        return [(value**self.by, {"parallax": self.by * value ** (self.by - 1)})]


def differenced(by):
    return Differenced(lambda parallax: parallax**by, ("parallax",), ("power",), ("",))


@pytest.mark.parametrize(
    "said",
    [lambda by: {"offset": {"parallax": Hook(lambda ra: by * ra, ("ra",))}},
     lambda by: {"inflate": {"parallax": Hook(lambda ra: 1 + by * ra, ("ra",))}},
     lambda by: {"error": {"parallax": Hook(lambda ra: by + ra, ("ra",))}},
     lambda by: {"columns": ["power"], "derive": differenced(by)},
     lambda by: {"columns": ["power"], "derive": Raised(by)},
     lambda by: {"columns": ["xi"], "derive": xd.sky.tangent(50.0 + by, 20.0)[0]}],
    ids=["offset", "inflate", "error", "function", "transform", "tangent"],
)  # fmt: skip
def test_recipes_by_other_functions_of_the_same_name_are_told_apart(said):
    def stamp(by):
        return open_catalog(gaia_like(100), **{"columns": ["parallax"], **said(by)}).stamp()

    assert stamp(1) == stamp(1)
    assert stamp(1) != stamp(2)
    assert json.loads(json.dumps(stamp(1))) == stamp(1)


def test_a_stream_is_not_resumed_with_another_function(path, tmp_path):
    def fitted(by):
        moved = Hook(lambda ra: by * ra, ("ra",))
        source = open_catalog(path, ["parallax"], offset={"parallax": moved}, memory=False)
        saved = xd.Checkpoint(tmp_path / "saved", resume=True)
        return xd.fit(source, 1, epochs=2, tol=0, moves="none", cache="none", method=xd.EM(), checkpoint=saved)

    fitted(1e-3)
    assert len(fitted(1e-3).history) == 2
    with pytest.raises(ValueError, match=r"belongs to another fit \(data functions: "):
        fitted(2e-3)


def test_tables_in_memory_have_stamps_too():
    columns = gaia_like(100)
    stamp = open_catalog(columns, FEATURES).stamp()
    assert stamp == open_catalog(gaia_like(100), FEATURES).stamp()
    columns["parallax"] = columns["parallax"] + 1
    assert stamp != open_catalog(columns, FEATURES).stamp()


# Files that shrink: a memory map would end the process


def shrinking(path, sizes):
    """In a process of its own: open, read a block, cut the file, read on; what happened, in a word."""
    source = open_catalog(path, ["x"], error={"x": None}, memory=False)
    blocks = (block for piece in source.table.pieces for block in source.table.read(piece, ["x"]))
    first = next(blocks)
    os.truncate(path, 200)
    try:
        float(np.sum(first.column("x").to_numpy()))
        for block in blocks:
            float(np.sum(block.column("x").to_numpy()))
    except ReadError as problem:
        sizes.send(f"refused: {problem}")
    else:
        sizes.send("read on")


def write_long_npy(path, x):
    np.save(path, np.rec.fromarrays([x, x], names="x,y"))


def write_long_arrow(path, x):
    with pa.ipc.new_file(str(path), pa.schema([("x", pa.float64())])) as writer:
        writer.write_table(pa.table({"x": x}), max_chunksize=70_000)


def write_long_fits(path, x):
    from astropy.table import Table

    Table({"x": x}).write(path)


def write_long_hdf5(path, x):
    import h5py

    with h5py.File(path, "w") as file:
        file["x"] = x


@pytest.mark.processes
@pytest.mark.parametrize(("name", "write"), [("a.npy", write_long_npy), ("a.arrow", write_long_arrow),
                                             ("a.fits", write_long_fits), ("a.hdf5", write_long_hdf5)])  # fmt: skip
def test_a_file_that_shrinks_under_a_stream(name, write, tmp_path):
    write(tmp_path / name, np.random.default_rng(0).normal(size=400_000))
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=shrinking, args=(tmp_path / name, there))
    process.start()
    process.join(60)
    assert process.exitcode == 0
    assert f"{name} cannot be read: it has changed" in here.recv()


@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_of_numbers_is_read_in_either_order(order, tmp_path):
    X = np.random.default_rng(0).normal(size=(70_000, 3))
    np.save(tmp_path / "a.npy", np.array(X, order=order))
    batch = open_catalog(tmp_path / "a.npy", ["a", "c", "e"], error=dict.fromkeys("ace")).load().batch
    assert np.array_equal(batch.x.T, X)
    np.save(tmp_path / "one.npy", X[:, 0])
    assert np.array_equal(open_catalog(tmp_path / "one.npy", error={"x0": None}).load().batch.x[0], X[:, 0])


# Stores


@pytest.fixture
def path(tmp_path):
    pq.write_table(arrow_table(gaia_like(3000)), tmp_path / "rows.parquet", row_group_size=250)
    return tmp_path / "rows.parquet"


def test_a_shard_is_checked_when_it_is_first_read(path, tmp_path):
    store = prepare(path, tmp_path / "store", shard_rows=1000)
    shard = sorted(store.glob("shard-*"))[1]
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(bytes(content))
    source = open_catalog(store, ["parallax"], memory=False)
    with pytest.raises(ReadError, match=rf"{shard.name} is damaged: its checksum is not the manifest's"):
        rows(source)


def test_a_dictionary_is_checked_with_every_part_of_a_shard(tmp_path, monkeypatch):
    """It stands before the first record batch, and all others read it."""
    monkeypatch.setattr("xdeconv.catalog.store.BATCH_ROWS", 100)
    names = pa.array([["aaa", "bbb", "ccc"][i % 3] for i in range(300)]).dictionary_encode()
    pq.write_table(pa.table({"x": np.arange(300.0), "name": names}), tmp_path / "rows.parquet")
    store = prepare(tmp_path / "rows.parquet", tmp_path / "store")
    table = open_table(store)
    assert len(table.pieces) == 3
    assert {*next(iter(table.read(table.pieces[2], ["name"]))).column("name").to_pylist()} == {"aaa", "bbb", "ccc"}
    shard = store / "shard-000000.arrow"
    content = shard.read_bytes()
    assert content.count(b"aaabbbccc") == 1
    shard.write_bytes(content.replace(b"aaabbbccc", b"aaazzzccc"))
    table = open_table(store)
    with pytest.raises(ReadError, match="its checksum is not the manifest's"):
        list(table.read(table.pieces[2], ["name"]))


def edited(store, change, sign=True):
    manifest = json.loads((store / "manifest.json").read_text())
    change(manifest)
    if sign:
        manifest["sha256"] = manifest_checksum(manifest)
    (store / "manifest.json").write_text(json.dumps(manifest))


def fewer_rows(manifest):
    manifest["shards"][0]["rows"] -= 1
    manifest["rows"] -= 1


def other_unit(manifest):
    next(c for c in manifest["columns"] if c["name"] == "parallax")["unit"] = "arcsec"


def other_names(manifest):
    a, b = (next(c for c in manifest["columns"] if c["name"] == n) for n in ("pmra", "pmdec"))
    a["name"], b["name"] = b["name"], a["name"]


def other_total(manifest):
    manifest["rows"] += 1


def other_batches(manifest):
    manifest["batch_rows"] = 100


def other_reading(manifest):
    manifest["reading"] = {"columns": ["parallax"], "bad_rows": "drop"}


def one_twice(manifest):
    manifest["shards"][1] = manifest["shards"][0]
    manifest["rows"] = sum(shard["rows"] for shard in manifest["shards"])


def exchanged(manifest):
    first, second = manifest["shards"][:2]
    first["file"], second["file"] = second["file"], first["file"]


@pytest.mark.parametrize(
    "change",
    [fewer_rows, other_unit, other_names, other_total, other_batches, other_reading, one_twice, exchanged],
)
def test_a_manifest_that_disagrees_with_its_shards_is_refused(change, path, tmp_path):
    store = prepare(path, tmp_path / "store", shard_rows=1000)
    edited(store, change)
    with pytest.raises(ReadError, match=r"manifest says|does not agree|were expected|does not say|must be unique"):
        rows(open_catalog(store, ["parallax", "pmra"], memory=False))


@pytest.mark.parametrize("name", ["../secret", "sub/../../secret", "/etc/hostname", "..", ""])
def test_a_manifest_tells_nothing_of_files_outside_its_folder(name, tmp_path):
    pq.write_table(arrow_table(gaia_like(400)), tmp_path / "rows.parquet")
    store = prepare(tmp_path / "rows.parquet", tmp_path / "store")
    (tmp_path / "secret").write_bytes(bytes(12345))
    edited(store, lambda manifest: manifest["shards"][0].update(file=name))
    said = "has None bytes" if name == ".." else "is not the name of a file in this folder"
    with pytest.raises(ReadError, match=said):
        open_catalog(store, FEATURES)


def test_a_manifest_that_was_edited_is_refused(path, tmp_path):
    store = prepare(path, tmp_path / "store", reading={"columns": ["parallax"], "error": {"parallax": 0.5}})
    edited(store, lambda manifest: manifest["reading"]["error"].update(parallax=0.1), sign=False)
    with pytest.raises(ReadError, match=r"manifest\.json is damaged: its checksum"):
        open_catalog(store)
    (store / "manifest.json").write_text("[" * 100_000)
    with pytest.raises(ReadError, match=r"manifest\.json is damaged"):
        open_catalog(store)


@pytest.mark.parametrize("stop_at", ["_write_run", "_shard"])
def test_a_preparation_of_a_changed_input_is_not_resumed(stop_at, path, tmp_path, monkeypatch):
    module = runs if stop_at == "_write_run" else making
    original, calls = getattr(module, stop_at), []

    def failing(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(module, stop_at, failing)
    options = {"shard_rows": 500, "run_bytes": 30_000}
    with pytest.raises(KeyboardInterrupt):
        prepare(path, tmp_path / "store", **options)
    monkeypatch.undo()
    changed(path)
    with pytest.raises((ValueError, OSError), match=r"rows\.parquet as it was before it changed"):
        prepare(path, tmp_path / "store", **options)


@pytest.mark.parametrize("stop_at", ["_write_run", "_shard", "_write_manifest"])
def test_a_store_that_is_not_finished_is_not_read(stop_at, path, tmp_path, monkeypatch):
    """Its shards were read as a folder of files: some of the rows, without a word."""
    module = runs if stop_at == "_write_run" else making
    original, calls = getattr(module, stop_at), []

    def failing(*arguments):
        calls.append(1)
        if len(calls) == (1 if stop_at == "_write_manifest" else 3):
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(module, stop_at, failing)
    store, options = tmp_path / "store", {"shard_rows": 500, "run_bytes": 30_000}
    with pytest.raises(KeyboardInterrupt):
        prepare(path, store, **options)
    monkeypatch.undo()
    found = sorted(store.glob("shard-*.arrow"))
    assert bool(found) == (stop_at != "_write_run")
    for given in (store, [store], *([store / "*.arrow", found[0]] if found else [])):
        with pytest.raises(OSError, match=r"store is a store that is not finished: .* `xdeconv prepare`"):
            open_catalog(given if isinstance(given, list) else str(given), ["parallax"])
    prepare(path, store, **options)
    assert open_catalog(store, ["parallax"]).rows == 3000


def test_a_finished_store_of_a_changed_input_is_refused(path, tmp_path):
    prepare(path, tmp_path / "store")
    pq.write_table(arrow_table(gaia_like(3000, seed=1)), path, row_group_size=250)
    with pytest.raises(ValueError, match=r"finished store of rows\.parquet as it was before it changed"):
        prepare(path, tmp_path / "store")


def hold(path, store, ready):
    """Prepare, and wait in the midst of it."""
    original = runs._write_run

    def slow(*arguments):
        ready.send(True)
        ready.recv()
        return original(*arguments)

    runs._write_run = slow
    prepare(path, store)


@pytest.mark.processes
def test_two_preparations_of_one_folder_are_refused(path, tmp_path):
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=hold, args=(path, tmp_path / "store", there))
    process.start()
    assert here.poll(60)
    with pytest.raises(BlockingIOError, match=r"another preparation is writing .*store"):
        prepare(path, tmp_path / "store")
    process.kill()
    process.join()
    assert rows(open_catalog(prepare(path, tmp_path / "store"), ["parallax"])) == 3000
    assert not (tmp_path / ".store.lock").exists()


def test_a_store_can_be_moved(path, tmp_path):
    store = prepare(path, tmp_path / "store", reading={"columns": ["parallax"]})
    shutil.move(store, tmp_path / "elsewhere")
    assert rows(open_catalog(tmp_path / "elsewhere")) == 3000
    assert open_table(tmp_path / "elsewhere").shuffled


@pytest.mark.parametrize("given", [0, 50])
def test_a_piece_with_fewer_rows_than_it_was_said_to_have_is_refused(given, tmp_path, monkeypatch):
    pq.write_table(arrow_table(gaia_like(100)), tmp_path / "rows.parquet")
    source = open_catalog(tmp_path / "rows.parquet", FEATURES)
    read = ParquetTable.read
    monkeypatch.setattr(ParquetTable, "read", lambda *a, **k: (b.slice(0, given) for b in read(*a, **k)))
    with pytest.raises(ReadError, match=rf"row group 0 is damaged: it has {given} rows where 100 were expected"):
        source.load()
