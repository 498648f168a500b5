"""Stores: shuffled, complete, independent of the input's order, checked, and resumable."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalogues import FEATURES, arrow_table, gaia_like
from xdeconv.catalog import planning, runs
from xdeconv.catalog import store as making
from xdeconv.catalog._open import open as open_catalog
from xdeconv.catalog.readers import ReadError, open_table
from xdeconv.catalog.readers.store import manifest_checksum
from xdeconv.catalog.store import check_store, prepare, sorted_by
from xdeconv.system import files

ROWS = 3000


@pytest.fixture
def path(tmp_path):
    table = arrow_table(gaia_like(ROWS))
    pq.write_table(table.take(np.argsort(table["ra"].to_numpy())), tmp_path / "sorted.parquet", row_group_size=250)
    return tmp_path / "sorted.parquet"


def column(folder, name="source_id"):
    table = open_table(folder)
    return np.concatenate([b.column(name).to_numpy() for piece in table.pieces for b in table.read(piece, [name])])


def test_every_row_once_and_shuffled(path, tmp_path):
    store = prepare(path, tmp_path / "store", shard_rows=500, run_bytes=50_000)
    assert sorted(column(store)) == sorted(gaia_like(ROWS)["source_id"])
    ra = column(store, "ra")
    assert abs(np.corrcoef(ra, np.arange(ROWS))[0, 1]) < 0.1
    assert len(list(store.glob("shard-*.arrow"))) == 6
    assert not (store / ".prepare").exists()
    check_store(store)


def test_batches_from_a_store_are_those_of_the_file(path, tmp_path):
    store = prepare(path, tmp_path / "store")
    a, b = (open_catalog(p, FEATURES, memory=False) for p in (path, store))
    assert b.table.shuffled
    x, y = a.load().batch, b.load().batch
    i, j = np.argsort(x.x[0].numpy()), np.argsort(y.x[0].numpy())
    assert np.allclose(x.x[:, i], y.x[:, j], equal_nan=True)
    assert np.allclose(x.noise[:, i], y.noise[:, j])
    assert b.units == a.units


def test_the_store_does_not_depend_on_the_order_of_the_input(path, tmp_path):
    pq.write_table(arrow_table(gaia_like(ROWS)), tmp_path / "other.parquet", row_group_size=999)
    a, b = (prepare(p, tmp_path / p.stem, shard_rows=1000, run_bytes=10**5) for p in (path, tmp_path / "other.parquet"))
    assert (column(a) == column(b)).all()
    assert (column(prepare(path, tmp_path / "seed", seed=1, shard_rows=1000)) != column(a)).any()


def test_without_random_index_rows_are_dealt_by_their_place(tmp_path):
    table = arrow_table(gaia_like(ROWS)).drop_columns(["random_index"])
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=700)
    found = column(prepare(tmp_path / "rows.parquet", tmp_path / "store", shard_rows=600))
    assert sorted(found) == sorted(gaia_like(ROWS)["source_id"])
    assert (found[:100] != gaia_like(ROWS)["source_id"][:100]).any()


def test_columns_and_rows_can_be_chosen(path, tmp_path):
    store = prepare(path, tmp_path / "store", columns=["ra", "source_id"], where="ruwe < 1")
    assert open_table(store).columns == ("ra", "source_id")
    assert open_table(store).units == {"ra": "deg"} | {}
    assert len(column(store)) == (gaia_like(ROWS)["ruwe"] < 1).sum()
    with pytest.raises(ValueError, match="did you mean"):
        prepare(path, tmp_path / "other", columns=["rA_"])


def rows_of(folder):
    """The rows of a store, in the order of their ids."""
    shards = [pa.ipc.open_file(str(shard)).read_all() for shard in sorted(folder.glob("shard-*.arrow"))]
    return pa.concat_tables(shards).sort_by("id")


MANY = 20_000  # bytes of a run: several
FIRST = {"id": np.arange(3000), "x": np.linspace(0, 1, 3000, dtype="f4"), "k": np.arange(3000, dtype="i4")}
SECOND = {"id": np.arange(3000, 6000), "x": np.linspace(0, 1, 3000), "k": np.arange(3000) + 2**40}


@pytest.mark.parametrize("order", ["ab", "ba"])
@pytest.mark.parametrize("run_bytes", [MANY, None])
def test_files_of_other_types_keep_their_values(order, run_bytes, tmp_path):
    """Of single and double precision, of 32 and 64 bits: whole numbers were cut to 32 bits without a word."""
    for name, columns in (("a", FIRST), ("b", SECOND)):
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet", row_group_size=500)
    files = [tmp_path / f"{name}.parquet" for name in order]
    found = rows_of(prepare(files, tmp_path / "store", shard_rows=1000, run_bytes=run_bytes))
    for name in FIRST:
        np.testing.assert_array_equal(found[name].to_numpy(), np.concatenate([FIRST[name], SECOND[name]]))


@pytest.mark.parametrize("run_bytes", [MANY, None])
@pytest.mark.parametrize("other", [[str(i) for i in range(3000)], [2.0**60 + 0.5] * 3000], ids=["text", "float"])
def test_files_whose_types_do_not_go_together_are_refused(other, run_bytes, tmp_path):
    pq.write_table(pa.table({**SECOND, "k": np.arange(3000) + 2**53 + 1}), tmp_path / "a.parquet", row_group_size=500)
    pq.write_table(pa.table({**FIRST, "k": other}), tmp_path / "b.parquet", row_group_size=500)
    with pytest.raises(ValueError, match=r"a\.parquet and 1 more.*k .*write its files alike"):
        prepare([tmp_path / "a.parquet", tmp_path / "b.parquet"], tmp_path / "store", run_bytes=run_bytes)


def test_a_condition_that_no_row_meets_is_refused_and_leaves_nothing(path, tmp_path):
    with pytest.raises(ValueError, match=r"sorted\.parquet has no rows where ruwe < 0"):
        prepare(path, tmp_path / "store", where="ruwe < 0", run_bytes=MANY)
    assert len(column(prepare(path, tmp_path / "store", where="ruwe < 1", run_bytes=MANY))) > 0


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_text_as_polars_writes_it_is_kept(ending, tmp_path):
    names = pa.array([None if i % 7 == 0 else f"star {i}" for i in range(3000)], pa.string_view())
    table, source = pa.table({**FIRST, "name": names}), tmp_path / f"rows.{ending}"
    if ending == "parquet":
        pq.write_table(table, source)
    else:
        with pa.ipc.new_file(str(source), table.schema) as writer:
            writer.write_table(table)
    found = rows_of(prepare(source, tmp_path / "store", where="k >= 10", shard_rows=1000, run_bytes=MANY))
    assert found["name"].to_pylist() == names.to_pylist()[10:]


@pytest.mark.parametrize("values", [np.full(3000, np.inf), -np.arange(3000.0), ["a"] * 3000], ids=["inf", "<0", "text"])
@pytest.mark.filterwarnings("error")
def test_an_index_that_is_none_does_not_deal_rows(values, tmp_path):
    pq.write_table(pa.table({**FIRST, "random_index": values}), tmp_path / "rows.parquet")
    store = prepare(tmp_path / "rows.parquet", tmp_path / "store", columns=["id", "x"], shard_rows=1000)
    assert rows_of(store)["id"].to_pylist() == list(range(3000))
    assert min(shard["rows"] for shard in json.loads((store / "manifest.json").read_text())["shards"]) > 800


def test_the_last_shards_are_held_out(path, tmp_path):
    making_rows = prepare(path, tmp_path / "store", shard_rows=300)
    source = open_catalog(making_rows, FEATURES, memory=False)
    train, held = source.split(0.2, seed=0)
    assert train.pieces == source._pieces[:8]
    assert held.rows + train.rows == ROWS


def test_csv_can_be_prepared(tmp_path):
    import pandas as pd

    pd.DataFrame(gaia_like(ROWS)).to_csv(tmp_path / "rows.csv.gz", index=False)
    store = prepare(tmp_path / "rows.csv.gz", tmp_path / "store", run_bytes=10**5)
    assert sorted(column(store)) == sorted(gaia_like(ROWS)["source_id"])
    assert open_catalog(store, FEATURES).load().rows == ROWS


def test_damage_is_found(path, tmp_path):
    store = prepare(path, tmp_path / "store")
    shard = next(store.glob("shard-*"))
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(bytes(content))
    with pytest.raises(OSError, match="checksum"):
        check_store(store)
    shard.write_bytes(bytes(content[:-10]))
    with pytest.raises(ReadError, match="the manifest says"):
        open_table(store)
    (store / "manifest.json").write_text("{}")
    with pytest.raises(ReadError, match="not the manifest"):
        open_table(store)


@pytest.fixture
def parted(path, tmp_path, monkeypatch):
    """A store with a shard of many record batches."""
    monkeypatch.setattr(making, "BATCH_ROWS", 100)
    return prepare(path, tmp_path / "parted", shard_rows=10**6)


def read_piece(store, number):
    table = open_table(store)
    return list(table.read(table.pieces[number], ["ra"]))


def damaged(store, place):
    shard = next(store.glob("shard-*"))
    content = bytearray(shard.read_bytes())
    content[place] ^= 1
    shard.write_bytes(bytes(content))


def parts_of_shard(store):
    return json.loads((store / "manifest.json").read_text())["shards"][0]["parts"]


def test_a_record_batch_is_checked_by_itself(parted):
    """So that threads check side by side: whole shards were checked by one thread while all others waited."""
    ends = [part["end"] for part in parts_of_shard(parted)]
    assert len(ends) == ROWS // 100 + 1
    damaged(parted, ends[4] + (ends[5] - ends[4]) // 2)
    assert read_piece(parted, 4)[0].num_rows == 100
    with pytest.raises(ReadError, match="checksum is not the manifest's"):
        read_piece(parted, 5)
    assert read_piece(parted, 6)[0].num_rows == 100


def test_a_damaged_footer_is_found_by_whatever_is_read(parted):
    shard = next(parted.glob("shard-*"))
    table = open_table(parted)
    content = bytearray(shard.read_bytes())
    content[parts_of_shard(parted)[-2]["end"] + 40] ^= 1
    stat = os.stat(shard)
    shard.write_bytes(bytes(content))
    os.utime(shard, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with pytest.raises(ReadError, match="checksum is not the manifest's"):
        list(table.read(table.pieces[3], ["ra"]))


def test_every_byte_of_a_shard_is_in_a_part(parted):
    shard = next(parted.glob("shard-*"))
    content, start = shard.read_bytes(), 0
    for part in parts_of_shard(parted):
        assert hashlib.sha256(content[start : part["end"]]).hexdigest() == part["sha256"]
        start = part["end"]
    assert start == len(content)


def test_a_store_of_version_one_is_read_and_checked(parted):
    """It has one checksum of the whole of a shard."""
    manifest = json.loads((parted / "manifest.json").read_text())
    for shard in manifest["shards"]:
        del shard["parts"]
        shard["sha256"] = hashlib.sha256((parted / shard["file"]).read_bytes()).hexdigest()
    manifest["version"] = 1
    manifest["sha256"] = manifest_checksum(manifest)
    (parted / "manifest.json").write_text(json.dumps(manifest))
    assert sorted(column(parted)) == sorted(gaia_like(ROWS)["source_id"])
    check_store(parted)
    damaged(parted, -2000)
    with pytest.raises(ReadError, match="checksum is not the manifest's"):
        read_piece(parted, 0)


def test_a_manifest_whose_parts_do_not_fit_is_refused(parted):
    manifest = json.loads((parted / "manifest.json").read_text())
    manifest["shards"][0]["parts"].pop(3)
    manifest["sha256"] = manifest_checksum(manifest)
    (parted / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ReadError, match="damaged"):
        open_table(parted)


def test_less_rows_are_dealt_to_smaller_shards(path, monkeypatch):
    """Of 20 shards, 16 threads make 16 and then 4; of 64 they end at about the same time."""

    def planned(rows, shard_rows=None, run_bytes=None):
        monkeypatch.setattr(planning, "rows_of", lambda table: rows)
        return planning.plan_of(open_table(path), ["ra"], None, 0, shard_rows, run_bytes, {})

    assert [planned(rows).shards for rows in (0, 1 << 16, 1 << 20, 20_000_000, 10**9)] == [1, 1, 16, 64, 954]
    assert planned(20_000_000, shard_rows=1 << 20).shards == 20
    assert [planned(rows).run_bytes for rows in (1000, 10**9)] == [1 << 24, 1 << 27]
    assert planned(1000, run_bytes=5).run_bytes == 5


def test_runs_of_before_a_restart_of_the_system_are_made_again(path, tmp_path, monkeypatch):
    """They were not forced to disk, and may look whole without being so."""
    options = {"shard_rows": 500, "run_bytes": 30_000}
    expected = prepare(path, tmp_path / "whole", **options)
    monkeypatch.setattr(making, "_shard", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        prepare(path, tmp_path / "store", **options)
    monkeypatch.undo()
    run = tmp_path / "store" / ".prepare" / "run-000002.arrow"
    content = run.read_bytes()
    half = len(content) // 2
    run.write_bytes(content[:half] + bytes(2000) + content[half + 2000 :])
    monkeypatch.setattr(planning, "boot", lambda: "another start")
    store = prepare(path, tmp_path / "store", **options)
    a, b = (json.loads((p / "manifest.json").read_text())["shards"] for p in (expected, store))
    assert a == b


@pytest.mark.parametrize("start", [None, "one"])
def test_runs_are_forced_to_disk_where_a_restart_cannot_be_told(start, path, tmp_path, monkeypatch):
    forced, sync = [], files._sync
    monkeypatch.setattr(runs, "boot", lambda: start)
    monkeypatch.setattr(files, "_sync", lambda path: forced.append(path.name) or sync(path))
    prepare(path, tmp_path / "store", shard_rows=500, run_bytes=30_000)
    assert any("run-" in name for name in forced) == (start is None)
    assert any("shard-000000.arrow" in name for name in forced)


def test_another_store_is_not_overwritten(path, tmp_path):
    store = prepare(path, tmp_path / "store")
    made = os.stat(store / "manifest.json").st_mtime_ns
    prepare(path, store)
    assert os.stat(store / "manifest.json").st_mtime_ns == made
    with pytest.raises(ValueError, match="finished store of something else"):
        prepare(path, store, seed=3)
    with pytest.raises(ValueError, match="not empty and not a store"):
        prepare(path, tmp_path)


@pytest.mark.parametrize("stop_at", ["_write_run", "_shard"])
def test_an_interrupted_preparation_goes_on(path, tmp_path, monkeypatch, stop_at):
    expected = prepare(path, tmp_path / "whole", shard_rows=500, run_bytes=30_000)
    module = runs if stop_at == "_write_run" else making
    original, calls = getattr(module, stop_at), []

    def failing(*arguments):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(module, stop_at, failing)
    with pytest.raises(KeyboardInterrupt):
        prepare(path, tmp_path / "store", shard_rows=500, run_bytes=30_000)
    before = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "store" / ".prepare").iterdir()}
    assert len(before) >= 4
    with pytest.raises(ValueError, match="unfinished preparation of something else"):
        prepare(path, tmp_path / "store", shard_rows=400, run_bytes=30_000)
    store = prepare(path, tmp_path / "store", shard_rows=500, run_bytes=30_000)
    a, b = (json.loads((p / "manifest.json").read_text())["shards"] for p in (expected, store))
    assert a == b
    if stop_at == "_write_run":
        assert len(calls) - 4 < 14  # runs that were there are not made again


@pytest.mark.processes
def test_kill_nine_and_go_on(path, tmp_path):
    """A process killed without warning leaves what the same command finishes, to the same bits."""
    expected = prepare(path, tmp_path / "whole", shard_rows=500, run_bytes=20_000)
    slow = (
        "import sys, time; from xdeconv.catalog import runs, store; f = runs._write_run\n"
        "def slower(*a):\n    time.sleep(0.3); return f(*a)\n"
        "runs._write_run = slower; store.prepare(sys.argv[1], sys.argv[2], shard_rows=500, run_bytes=20_000)"
    )
    process = subprocess.Popen([sys.executable, "-c", slow, str(path), str(tmp_path / "store")])
    deadline = time.monotonic() + 60
    while len(list((tmp_path / "store").glob(".prepare/run-*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = {p: p.stat().st_mtime_ns for p in (tmp_path / "store").glob(".prepare/run-*")}
    assert len(done) >= 2
    assert not (tmp_path / "store" / "manifest.json").exists()
    store = prepare(path, tmp_path / "store", shard_rows=500, run_bytes=20_000)
    a, b = (json.loads((p / "manifest.json").read_text())["shards"] for p in (expected, store))
    assert a == b


def test_a_store_has_the_same_bits_whatever_the_number_of_threads(path, tmp_path, monkeypatch):
    found = []
    for many in (1, 2, 5):
        monkeypatch.setattr(runs, "threads", lambda many=many: many)
        store = prepare(path, tmp_path / str(many), shard_rows=500, run_bytes=30_000)
        found.append(json.loads((store / "manifest.json").read_text())["shards"])
    assert found[0] == found[1] == found[2]


def test_a_run_after_one_that_is_missing_is_made_again(path, tmp_path, monkeypatch):
    """Threads may have finished a later run when the process was killed."""
    options = {"shard_rows": 500, "run_bytes": 30_000}
    expected = prepare(path, tmp_path / "whole", **options)
    monkeypatch.setattr(making, "_shard", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        prepare(path, tmp_path / "store", **options)
    monkeypatch.undo()
    (tmp_path / "store" / ".prepare" / "run-000002.arrow").unlink()
    store = prepare(path, tmp_path / "store", **options)
    a, b = (json.loads((p / "manifest.json").read_text())["shards"] for p in (expected, store))
    assert a == b


@pytest.mark.parametrize("different", [3, 1 << 40])
def test_equal_keys_stay_in_the_order_in_which_they_came(different):
    keys = np.random.default_rng(0).integers(0, different, size=5000, dtype=np.uint64)
    np.testing.assert_array_equal(sorted_by(keys), np.argsort(keys, kind="stable"))
