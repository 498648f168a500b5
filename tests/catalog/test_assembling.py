"""The compiled assembly against dense matrices, and that a catalogue is read once, by any number of threads alike."""

import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tests.catalogues import arrow_table, gaia_like

import xdeconv as xd
from xdeconv.catalog import reading, stream
from xdeconv.catalog.assembling import assemble, blank
from xdeconv.catalog.bad_rows import bad_rows
from xdeconv.catalog.latitudes import cosines
from xdeconv.catalog.readers import numbers
from xdeconv.catalog.readers.parquet import ParquetTable
from xdeconv.catalog.recipe import Deviation, Frame, Quantity, Recipe
from xdeconv.catalog.transforms import Plain
from xdeconv.rows import surveyed
from xdeconv.system import threads as workers

COLUMNS = ["ra", "dec", "parallax", "pmra", "pmdec", "bp_rp", "phot_g_mean_mag"]


def dense(recipe, columns, n):
    """Values (n, p) and covariances (n, p, p), from J C J^T in float64; zero where a value is missing."""
    found = recipe.evaluate(columns)
    sources = list(found.deviations)
    J = np.zeros((n, len(found.x), len(sources)))
    C = np.tile(np.eye(len(sources)), (n, 1, 1))
    for a, slopes in enumerate(found.slopes):
        for source, slope in slopes.items():
            J[:, a, sources.index(source)] = slope * np.asarray(found.deviations[source], float)
    for (s, t), r in found.correlations.items():
        i, j = sources.index(s), sources.index(t)
        C[:, i, j] = C[:, j, i] = np.nan_to_num(np.asarray(r, float))
    x = np.stack([np.asarray(v, float) for v in found.x], 1)
    J[np.isnan(x)] = 0.0
    return x, J @ C @ J.transpose(0, 2, 1)


def packed(S):
    a, b = np.tril_indices(S.shape[1])
    return S[:, a, b].T


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("rows", [1, 1023, 1024, 1025, 40_000])
def test_the_kernel_is_the_dense_product(rows, single):
    columns = {name: np.asarray(c) for name, c in gaia_like(rows, missing=True).items()}
    recipe = xd.open(columns, COLUMNS).recipe
    frame = Frame(np.arange(7.0), np.arange(1.0, 8.0))
    number = np.float32 if single else np.float64
    room = (np.full((7, rows), np.nan, number), np.full((28, rows), np.nan, number))
    found = assemble(recipe, [columns], frame, room)
    x, S = dense(recipe, columns, rows)
    close = 1e-6 if single else 1e-13
    np.testing.assert_allclose(found.x, ((x - frame.shift) / frame.scale).T, rtol=close, atol=close)
    np.testing.assert_allclose(
        found.noise, packed(S / (frame.scale[:, None] * frame.scale)), rtol=10 * close, atol=1e-20
    )
    assert not found.doubtful.any()
    assert found.partial == np.isnan(x).any(1).sum()
    assert found.empty == np.isnan(x).all(1).sum()
    seen = ~np.isnan(x).all(0)
    spans = np.stack([np.nanmin(x[:, seen], 0), np.nanmax(x[:, seen], 0)], 1)
    np.testing.assert_array_equal(found.spans[seen], spans)


@pytest.mark.parametrize("single", [False, True])
def test_rows_that_were_looked_at_are_assembled_to_the_same_bits(single):
    columns = {name: np.asarray(c) for name, c in gaia_like(3000, missing=True).items()}
    derived = {"m": "phot_g_mean_mag + 5 * log10(abs(parallax)) - 10"}
    for words in ({"columns": COLUMNS}, {"columns": ["bp_rp", "m"], "derive": derived}):
        recipe = xd.open(columns, **words).recipe
        rooms = [[np.full(a.shape, np.nan, "f4" if single else "f8") for a in blank(recipe, 3000)] for _ in range(2)]
        looked = assemble(recipe, [columns], None, rooms[0])
        known = assemble(recipe, [columns], None, rooms[1], look=False)
        np.testing.assert_array_equal(looked.x, known.x)
        np.testing.assert_array_equal(looked.noise, known.noise)
        assert (looked.empty, looked.partial) == (known.empty, known.partial)


def test_derived_features_have_slopes_of_each_row():
    columns = {name: np.asarray(c) for name, c in gaia_like(500, missing=True).items()}
    recipe = xd.open(columns, ["l", "b", "pml", "pmb", "parallax"], derive="galactic").recipe
    found = assemble(recipe, [columns])
    x, S = dense(recipe, columns, 500)
    np.testing.assert_array_equal(found.x, x.T)
    np.testing.assert_allclose(found.noise, packed(S), rtol=1e-9, atol=1e-25)


@pytest.mark.parametrize("skip", [0, 3, 8, 13])
@pytest.mark.parametrize("number", [np.float32, np.float64])
def test_nulls_become_nan_from_any_row_on(number, skip):
    rng = np.random.default_rng(skip)
    column = pa.array(rng.normal(size=1000).astype(number), mask=rng.random(1000) < 0.3).slice(skip, 900)
    found = numbers(pa.record_batch([column], ["x"]), "x")
    assert found.dtype == number
    np.testing.assert_array_equal(found, [np.nan if v is None else v for v in column.to_pylist()])


@pytest.mark.parametrize("number", [np.float32, np.float64])
def test_columns_without_nulls_are_read_from_any_row_on(number):
    column = pa.array(np.arange(20, dtype=number))
    for part in (column, column.slice(3, 9), column.slice(5, 0), pa.array([], column.type)):
        found = numbers(pa.record_batch([part], ["x"]), "x")
        assert found.dtype == number
        assert found.tolist() == part.to_pylist()


@pytest.mark.processes
def test_reading_a_file_imports_no_pandas(tmp_path):
    """Arrow's way to an array does: 0.3 s of a process that has it installed."""
    pq.write_table(arrow_table(gaia_like(100, missing=True)), tmp_path / "rows.parquet")
    script = f"""
        import sys
        import xdeconv as xd
        assert sum(b.n for b in xd.open({str(tmp_path / "rows.parquet")!r}, {COLUMNS!r}).batches(0)) == 100
        assert "pandas" not in sys.modules
        """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)


def test_cosines_of_latitudes_are_cosines():
    degrees = np.concatenate([np.random.default_rng(0).uniform(-180, 180, 10_000), [0.0, 90.0, -90.0, 180.0, np.nan]])
    np.testing.assert_allclose(cosines(degrees), np.cos(degrees * (np.pi / 180)), rtol=5e-16)
    far = np.array([200.0, 359.0, -1e4])
    np.testing.assert_array_equal(cosines(far), np.cos(far * (np.pi / 180)))


def three(n, seed=0):
    rng = np.random.default_rng(seed)
    columns = {name: rng.normal(size=n) for name in "abc"}
    columns |= {f"s{name}": rng.uniform(0.1, 1.0, n).astype(np.float32) for name in "abc"}
    columns |= {f"r{i}": rng.uniform(-0.4, 0.4, n) for i in range(3)}
    pairs = {("a", "b"): "r0", ("a", "c"): "r1", ("b", "c"): "r2"}
    quantities = {name: Quantity(name, {name: 1.0}) for name in "abc"}
    deviations = {name: Deviation(Plain(f"s{name}")) for name in "abc"}
    return columns, Recipe(tuple("abc"), ("",) * 3, quantities, deviations, pairs)


@pytest.mark.parametrize(
    ("column", "value"),
    [("sa", -1.0), ("sa", np.nan), ("sb", np.inf), ("a", np.inf), ("b", -np.inf), ("r0", 1.5), ("r2", np.nan),
     ("r1", -1.1)],
)  # fmt: skip
@pytest.mark.parametrize("row", [0, 300, 999])
def test_a_bad_row_is_doubtful_and_no_other(column, value, row):
    columns, recipe = three(1000)
    columns[column][row] = value
    made = assemble(recipe, [columns])
    assert np.flatnonzero(made.doubtful).tolist() == [row]
    assert np.flatnonzero(bad_rows(recipe, columns, made.x, made.noise)[0]).tolist() == [row]


def test_the_errors_of_missing_values_do_not_matter():
    columns, recipe = three(1000)
    columns["a"][5], columns["sa"][5], columns["r0"][5] = np.nan, -1.0, np.nan
    made = assemble(recipe, [columns])
    assert not made.doubtful.any()
    assert made.noise[0, 5] == made.noise[1, 5] == 0.0


def test_what_is_bad_is_always_doubtful():
    columns, recipe = three(20_000, seed=3)
    rng = np.random.default_rng(4)
    for i in range(3):
        columns[f"r{i}"] = rng.uniform(-1, 1, 20_000)  # many of which no covariance can have
    made = assemble(recipe, [columns])
    bad, _ = bad_rows(recipe, columns, made.x, made.noise)
    assert 1000 < bad.sum() < 15_000
    assert made.doubtful[bad].all()


# Files


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    columns = gaia_like(7000, missing=True, seed=5)
    columns["parallax_error"][[17, 4321]] = -1.0
    found = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pq.write_table(arrow_table(columns), found, row_group_size=1000)
    return found


@pytest.fixture
def reads(monkeypatch):
    """The row groups that were read."""
    found = []
    read = ParquetTable.read

    def noted(self, piece, columns, floats=()):
        found.append(piece.index)
        return read(self, piece, columns, floats)

    monkeypatch.setattr(ParquetTable, "read", noted)
    return found


def opened(path, **words):
    return xd.open(path, COLUMNS, memory=False, bad_rows="drop", **words)


def test_batches_and_sums_have_the_same_bits_whatever_the_number_of_threads(path, monkeypatch):
    found = []
    for many in (1, 2, 5):
        monkeypatch.setattr(workers, "threads", lambda many=many: many)
        source = opened(path)
        batches = list(source.batches(0))
        total = opened(path).sum(lambda batch: batch.x.nansum(1) * 1.1)
        sample = opened(path).sample(500, 3)
        found.append((torch.cat([b.x for b in batches], 1), total, sample.x, source.rows))
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            assert one == two if isinstance(one, int) else torch.equal(one.nan_to_num(-9.0), two.nan_to_num(-9.0))
    assert found[0][3] == 6998


def test_loading_is_what_batches_are(path, monkeypatch):
    source = xd.open(path, COLUMNS[:2])  # no parallax, no bad row
    for many in (1, 3):
        monkeypatch.setattr(workers, "threads", lambda many=many: many)
        whole = source.load().batch
        parts = list(source.batches(0))
        assert torch.equal(whole.x, torch.cat([b.x for b in parts], 1))
        assert torch.equal(whole.noise, torch.cat([b.noise for b in parts], 1))


@pytest.mark.parametrize(
    ("columns", "words", "validation", "before"),
    [(COLUMNS[:2], {}, None, 1), (COLUMNS[:2], {}, 0.1, 1), (COLUMNS, {"bad_rows": "drop"}, None, 1),
     (COLUMNS[:2], {"where": "dec < 25"}, None, 1), (COLUMNS, {"bad_rows": "drop"}, 0.1, 2)],
)  # fmt: skip
def test_a_streamed_fit_reads_its_file_once_before_the_first_pass(
    path, reads, columns, words, validation, before, monkeypatch
):
    """Only where rows must be counted before some are held out, and no number of the file tells, twice."""
    monkeypatch.setattr(stream, "HELD_BYTES", 200_000)  # rows held out take less, all rows more
    source = xd.open(path, columns, **words)
    after_one = []
    method = xd.EM(accelerate=False)
    xd.fit(source, 2, epochs=1, tol=0, moves="none", method=method, validation=validation,
           callback=lambda _: after_one.append(len(reads) / 7))  # fmt: skip
    assert after_one == [before + 1]


def test_a_fit_by_default_reads_its_file_once_before_the_first_pass(path, reads, monkeypatch):
    monkeypatch.setattr(stream, "HELD_BYTES", 200_000)
    after_one = []
    xd.fit(xd.open(path, COLUMNS[:2]), 2, epochs=1, moves="none", seed=5,
           callback=lambda _: after_one.append(len(reads) / 7))  # fmt: skip
    assert after_one == [2]


def test_searches_read_nothing_that_the_survey_has_read(path, reads, monkeypatch):
    """Starts, contests and pools of searches, each with a seed of its own, come from the rows that were kept.

    What is left is a reading per pass, and one that judges where the first start has ended.
    """
    monkeypatch.setattr(stream, "HELD_BYTES", 200_000)
    after = []
    xd.fit(xd.open(path, COLUMNS[:2]), 3, epochs=8, restarts=2, seed=5, method=xd.EM(accelerate=False),
           callback=lambda _: after.append(len(reads) / 7))  # fmt: skip
    assert np.diff(after, prepend=0).tolist() == [2, *[1] * 7, 2, *[1] * 7]


def test_a_sample_depends_on_nothing_that_was_asked_before(path):
    first, second = opened(path), opened(path)
    first.sample(300, 8)
    assert torch.equal(first.sample(300, 4).x.nan_to_num(), second.sample(300, 4).x.nan_to_num())


def test_rows_held_out_take_nothing_from_samples_of_the_others(path, tmp_path, monkeypatch):
    """Rows chosen by the hash that holds others out would all be held out themselves."""
    pq.write_table(pq.read_table(path), tmp_path / "one.parquet", row_group_size=7000)
    monkeypatch.setattr(surveyed, "SURVEY_ROWS", 100)
    monkeypatch.setattr(stream, "SURVEY_ROWS", 100)
    for seed in (0, 1):
        train, _ = xd.open(tmp_path / "one.parquet", COLUMNS[:2], memory=False).split(0.5, seed)
        assert train.sample(100, seed).n == 100


def test_bad_rows_are_looked_for_once(path, monkeypatch):
    source = opened(path)
    assembled = []
    real = reading.assemble
    monkeypatch.setattr(reading, "assemble", lambda *a: assembled.append(a[5]) or real(*a))
    list(source.batches(0))
    assert assembled == [True, True, True, False]  # all, two groups with a bad row exactly, and all that are left
    assembled.clear()
    list(source.batches(0))
    assert assembled == [False]
    assert source.notes == ("2 rows with impossible errors were dropped",)


@pytest.mark.parametrize("many", [1, 2, 5])
def test_the_first_bad_row_is_named_by_any_number_of_threads(path, many, monkeypatch):
    monkeypatch.setattr(workers, "threads", lambda: many)
    source = xd.open(path, COLUMNS, memory=False)
    for _ in range(2):  # a second try finds it again
        with pytest.raises(ValueError, match=r"rows\.parquet, row 17 in row group 0: parallax_error is negative"):
            source.sum(lambda batch: batch.x.sum())
        with pytest.raises(ValueError, match=r"rows\.parquet, row 17 in row group 0: parallax_error is negative"):
            list(source.batches(0))


def test_ranks_share_row_groups_out():
    assert reading.shared_out([10] * 7, 1) == [list(range(7))]
    two = reading.shared_out([100] * 8, 2)
    assert sorted(two[0] + two[1]) == list(range(8))
    assert reading.shared_out([1000, 10], 2) is None


@pytest.mark.processes
@pytest.mark.slow
def test_an_interrupt_ends_a_streamed_fit_within_a_second_and_it_resumes(tmp_path):
    rows = tmp_path / "rows.parquet"
    rng = np.random.default_rng(0)
    table = {name: rng.normal(size=400_000) for name in "xy"}
    table |= {f"{name}_error": np.full(400_000, 0.1) for name in "xy"}
    pq.write_table(pa.table(table), rows, row_group_size=20_000)
    script = tmp_path / "run.py"
    script.write_text(
        textwrap.dedent(f"""
        import time
        import xdeconv as xd
        source = xd.open({str(rows)!r}, ["x", "y"], memory=False)
        said = lambda epoch: print("epoch", flush=True)
        result = xd.fit(source, 16, epochs=4000, tol=0, moves="none", method=xd.EM(accelerate=False),
                        checkpoint={str(tmp_path / "c")!r}, callback=said)
        print("ended", time.time())
        print(result.notes)
        """)
    )
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as process:
        for _ in range(2):
            assert process.stdout.readline().startswith("epoch")
        sent = time.time()
        process.send_signal(signal.SIGINT)
        out = process.stdout.read().splitlines()
    ended = next(line for line in out if line.startswith("ended"))
    assert float(ended.split()[1]) - sent < 1.0
    assert "resume" in out[-1]
    source = xd.open(rows, ["x", "y"], memory=False)
    again = xd.fit(source, 16, epochs=5, tol=0, moves="none", method=xd.EM(accelerate=False),
                   checkpoint=xd.Checkpoint(tmp_path / "c", resume=True))  # fmt: skip
    assert len(again.history) >= 3
