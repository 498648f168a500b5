"""A checkpoint belongs to its rows, to how they were read and to the words of its fit: others are refused."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import xdeconv as xd
from xdeconv.rows.batch import Batch
from xdeconv.rows.data import Source

N = 300
RNG = np.random.default_rng(0)
COLUMNS = {"x": RNG.normal(size=N), "y": RNG.normal(size=N), "x_error": np.full(N, 0.1), "y_error": np.full(N, 0.2)}
READ = {"columns": ["x", "y"], "memory": False}


@pytest.fixture
def path(tmp_path):
    pq.write_table(pa.table(COLUMNS), tmp_path / "rows.parquet", row_group_size=100)
    return tmp_path / "rows.parquet"


def fit(source, folder, epochs, resume=True, **more):
    checkpoint = xd.Checkpoint(folder / "checkpoint", every=0, resume=resume)
    more = {"validation": 0.2, **more}
    return xd.fit(source, 2, epochs=epochs, tol=0, moves="none", cache="none", checkpoint=checkpoint, **more)


def test_a_stream_is_resumed_with_its_rows(path, tmp_path):
    fit(xd.open(path, **READ), tmp_path, 2, resume=False)
    resumed = fit(xd.open(path, **READ), tmp_path, 4)
    whole = fit(xd.open(path, **READ), tmp_path, 4, resume=False)
    assert np.array_equal(resumed.mixture.means, whole.mixture.means)


def other_rows(path):
    pq.write_table(pa.table({**COLUMNS, "x": COLUMNS["x"][::-1]}), path, row_group_size=100)
    return xd.open(path, **READ)


def one_byte(path):
    """The same size and time: what a sample of the contents tells."""
    time = path.stat().st_mtime_ns
    content = bytearray(path.read_bytes())
    content[5] ^= 1  # the last bits of a number
    path.write_bytes(bytes(content))
    os.utime(path, ns=(time, time))
    return xd.open(path, **READ)


def touched(path):
    os.utime(path, ns=(1, 1))
    return xd.open(path, **READ)


@pytest.mark.parametrize("change", [other_rows, one_byte, touched])
def test_a_stream_whose_file_changed_is_not_resumed(change, path, tmp_path):
    fit(xd.open(path, **READ), tmp_path, 2, resume=False)
    with pytest.raises(
        (ValueError, OSError),
        match=r"rows\.parquet (has changed since|is damaged|cannot be read)|is damaged or cannot be read",
    ):
        fit(change(path), tmp_path, 4)


@pytest.mark.parametrize(
    "reading",
    [
        {"where": "x > -1"}, {"error": {"x": 0.3}}, {"offset": {"x": 1.0}}, {"inflate": {"x": 2.0}},
        {"correlation": {("x", "y"): 0.5}}, {"derive": {"y": "2 * y"}}, {"bad_rows": "drop"}, {"weight": "y_error"},
        {"columns": ["y", "x"]}, {"unit": {"x": "mas"}},
    ],
    ids=str,
)  # fmt: skip
def test_a_stream_that_is_read_otherwise_is_not_resumed(reading, path, tmp_path):
    fit(xd.open(path, **READ), tmp_path, 2, resume=False)
    with pytest.raises(ValueError, match="belongs to another fit"):
        fit(xd.open(path, **{**READ, **reading}), tmp_path, 4)


def test_expressions_are_told_apart(path, tmp_path):
    read = {"columns": ["x", "z"], "memory": False}
    fit(xd.open(path, **read, derive={"z": "2 * y"}), tmp_path, 2, resume=False)
    with pytest.raises(ValueError, match=r"data reading derive .*2 \* y.* there, .*3 \* y"):
        fit(xd.open(path, **read, derive={"z": "3 * y"}), tmp_path, 4)


def test_other_rows_held_out_are_refused(path, tmp_path):
    for source in (lambda: xd.open(path, **READ), lambda: xd.open(path, ["x", "y"])):
        fit(source(), tmp_path, 2, resume=False)
        with pytest.raises(ValueError, match="validation"):
            fit(source(), tmp_path, 4, validation=0.3)
        with pytest.raises(ValueError, match="validation"):
            fit(source(), tmp_path, 4, validation=None)


class Own(Source):
    """A source that a user wrote."""

    rows, dim = N, 2

    def __init__(self, factor):
        self.factor = factor

    def batches(self, epoch, *, rank=0, world=1):
        yield Batch.from_arrays(self.factor * np.stack([COLUMNS["x"], COLUMNS["y"]], 1)[rank::world], error=[0.1, 0.2])


def test_a_source_of_the_users_own_is_told_by_its_first_batch(tmp_path):
    fit(Own(1.0), tmp_path, 2, resume=False)
    assert len(fit(Own(1.0), tmp_path, 4).history) == 4
    with pytest.raises(ValueError, match="data checksum"):
        fit(Own(2.0), tmp_path, 4)


@pytest.mark.slow
def test_very_many_files_are_one_checksum(tmp_path):
    for i in range(120):
        pq.write_table(pa.table({name: values[:3] for name, values in COLUMNS.items()}), tmp_path / f"part{i}.parquet")
    files = str(tmp_path / "part*.parquet")
    result = fit(xd.open(files, **READ), tmp_path, 1, resume=False)
    assert set(result.mixture.meta["fit"]["data"]["files"]) == {"count", "checksum"}
    pq.write_table(pa.table({name: values[3:6] for name, values in COLUMNS.items()}), tmp_path / "part77.parquet")
    with pytest.raises(ValueError, match="data files checksum"):
        fit(xd.open(files, **READ), tmp_path, 2)
