"""Rows in compact chunks: what is packed comes back, rounding keeps covariances sound, order, samples, and fits."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import xdeconv as xd
from xdeconv.rows import packing, resident
from xdeconv.rows.batch import Batch
from xdeconv.rows.data import ArraySource
from xdeconv.rows.packing import Layout, pack
from xdeconv.rows.resident import Place, hold, placed
from xdeconv.simulate import _gaia as simulate

CPU = torch.device("cpu")


def gaia(n=500, dtype=torch.float32):
    return simulate.gaia(n, seed=3).batch.to(dtype=dtype)


def complete_first(batch):
    """Rows as a chunk has them."""
    return batch.rows(batch.x.isnan().any(0).byte().argsort(stable=True))


def same(a, b):
    return all(
        (x is None and y is None) or torch.equal(x.nan_to_num(-9.0), y.nan_to_num(-9.0))
        for x, y in ((getattr(a, name), getattr(b, name)) for name in ("x", "noise", "weight", "scale"))
    )


# Packing


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_exact_form_is_exact(dtype):
    batch = gaia(dtype=dtype)
    batch = replace(batch, weight=torch.rand(500, dtype=dtype, generator=torch.Generator().manual_seed(0)))
    chunk = pack(batch)
    assert same(chunk.unpacked(None, None), complete_first(batch))
    assert not chunk.unpacked(None, None).x[:, : chunk.complete].isnan().any()
    assert chunk.unpacked(None, None).x[:, chunk.complete :].isnan().any(0).all()
    assert chunk.layout.row_bytes == (7 + 17 + 1) * dtype.itemsize  # of 28 entries, 11 are zero in all rows
    assert chunk.memory.numel() == 500 * chunk.layout.row_bytes


def test_other_kinds_of_noise():
    x = torch.randn(3, 40, generator=torch.Generator().manual_seed(1))
    for noise in (None, torch.rand(3, 40), torch.rand(3, 1), torch.rand(6, 1)):
        batch = Batch(x=x, noise=noise)
        known = packing.common(batch)
        assert same(pack(batch).unpacked(**known), batch)
    assert pack(Batch(x=x, noise=torch.rand(3, 1))).layout.row_bytes == 12


def test_a_missing_value_is_told_by_the_rows_themselves():
    batch = gaia(2000)
    seen = ~batch.x.isnan().any(0)
    assert pack(batch).layout.missing
    assert not pack(batch.rows(seen.nonzero()[:, 0])).layout.missing


def test_rounding_is_small_and_said_how_small():
    batch = complete_first(gaia())
    exact, rounded = batch.covariance(), pack(batch, rounded=True).unpacked(None, None).covariance()
    sd = exact.diagonal(dim1=1, dim2=2).sqrt()
    size = (sd[:, :, None] * sd[:, None, :]).clamp(min=1e-30)
    assert (((rounded - exact) / size).abs() < 2e-4).all()
    assert torch.allclose(rounded.diagonal(dim1=1, dim2=2), sd**2, rtol=1e-6, atol=0)
    assert pack(batch, rounded=True).layout.row_bytes == 4 * 14 + 2 * 10


def test_rounding_keeps_singular_covariances_positive_definite():
    rng = np.random.default_rng(0)
    L = rng.normal(size=(2000, 7, 2)) * 10.0 ** rng.uniform(-3, 3, size=(2000, 7, 1))
    S = torch.from_numpy(L @ L.transpose(0, 2, 1))  # rank 2
    a, b = torch.tril_indices(7, 7)
    batch = Batch(x=torch.zeros(7, 2000), noise=S[:, a, b].T.float().contiguous())
    found = pack(batch, rounded=True).unpacked(None, None).covariance().double()
    sd = found.diagonal(dim1=1, dim2=2).sqrt()
    assert (torch.linalg.eigvalsh(found / sd[:, :, None] / sd[:, None, :])[:, 0] > 5e-5).all()


def test_projections_have_no_compact_form():
    with pytest.raises(ValueError, match="no compact form"):
        Layout.of(Batch(x=torch.zeros(1, 4), projection=torch.ones(1, 2, 4)))


# The source


@pytest.fixture
def held(monkeypatch):
    monkeypatch.setattr(resident, "PINNED_BYTES", 96 * 70)  # chunks of 70 rows
    return hold(ArraySource(gaia()), "host", CPU)


def keys(batches):
    return torch.cat([batch.x[6] for batch in batches])


def test_a_pass_has_all_rows_those_that_miss_nothing_apart(held):
    assert len(held.chunks) == 8
    assert held.rows == 500
    batches = list(held.batches(0))
    assert torch.equal(keys(batches).sort().values, gaia().x[6].sort().values)
    assert {batch.missing for batch in batches} == {True, False}
    assert all(bool(batch.x.isnan().any(0).all()) == batch.missing for batch in batches)
    assert not any(batch.x.isnan().any() for batch in batches if not batch.missing)
    for chunk, first in zip(held.chunks, range(0, 500, 70), strict=True):
        assert torch.equal(
            keys([chunk.unpacked(None, None)]), complete_first(gaia().rows(slice(first, first + 70))).x[6]
        )


def test_shuffled_batches_are_a_function_of_seed_and_epoch(held):
    arranged = held.arranged(33, seed=5)
    batches = list(arranged.batches(2))
    assert [batch.n for batch in batches] == [33] * 15 + [5]
    assert all(batch.missing for batch in batches)
    assert torch.equal(keys(batches), keys(arranged.batches(2)))
    assert not torch.equal(keys(batches), keys(arranged.batches(3)))
    assert torch.equal(keys(batches).sort().values, gaia().x[6].sort().values)


@pytest.mark.parametrize("size", [None, 40])
def test_ranks_share_the_rows(held, size):
    parts = [keys(held.arranged(size, 0).batches(1, rank=r, world=3)) for r in range(3)]
    assert torch.equal(torch.cat(parts).sort().values, gaia().x[6].sort().values)
    assert max(map(len, parts)) - min(map(len, parts)) <= 8


def test_a_rank_that_holds_its_part_gives_no_other():
    parts = [hold(ArraySource(gaia()), "host", CPU, rank=r, world=2) for r in range(2)]
    found = torch.cat([keys(part.batches(0, rank=r, world=2)) for r, part in enumerate(parts)])
    assert torch.equal(found.sort().values, gaia().x[6].sort().values)
    assert parts[0].rows == 500
    assert same(parts[0].sample(50, 1), parts[1].sample(50, 1))
    with pytest.raises(ValueError, match=r"holds part \(1, 2\)"):
        parts[1].batches(0)


def test_a_sample_is_fair_and_of_the_size_asked_for(held):
    sample = held.sample(123, 4)
    assert sample.n == 123
    assert len(set(sample.x[6].tolist())) == 123
    assert held.sample(10_000, 4).n == 500


# Fits


def test_a_fit_is_the_same_wherever_its_rows_are(tmp_path):
    import pyarrow.parquet as pq

    pq.write_table(simulate.gaia(3000, seed=1).to_table(), tmp_path / "rows.parquet")
    source = xd.open(tmp_path / "rows.parquet", columns=["parallax", "pmra", "pmdec"], memory=False)
    settings = {"method": xd.EM(), "dtype": "float64"}
    first = xd.fit(source, 3, epochs=1, **settings).mixture
    found = [xd.fit(source, mixture=first, epochs=5, cache=cache, **settings) for cache in ("host", "none")]
    assert np.allclose(found[0].mixture.means, found[1].mixture.means, rtol=1e-10)
    assert abs(found[0].loglik - found[1].loglik) < 1e-9
    assert "3,000 rows are kept in host memory" in found[0].notes[0]
    assert "bytes per row, exact" in found[0].notes[0]
    assert "read again in every pass" in found[1].notes[0]


def test_minibatches_of_kept_rows_reach_the_same_likelihood():
    source = ArraySource(simulate.gaia(4000, seed=1, missing=False).batch.to(dtype=torch.float64))
    place = Place(torch.zeros(7).double(), torch.ones(7).double(), CPU, torch.float64)
    held = hold(placed(source, place)[0], "host", CPU)
    start = xd.fit(source, 3, moves="none", epochs=2).mixture
    arguments = {"mixture": start, "method": xd.EM(step=0.05), "batch_rows": 200, "epochs": 4, "tol": 0}
    fits = [xd.fit(s, **arguments) for s in (held, source)]
    assert abs(fits[0].loglik - fits[1].loglik) < 0.02
    assert fits[0].loglik > start.score(source.batch) + 0.01


def test_rounded_only_when_asked_for_and_needed(monkeypatch):
    source = ArraySource(gaia(2000))
    stream = hold(source, "host", CPU)  # a stream as good as any
    place = Place(torch.zeros(7).double(), torch.ones(7).double(), CPU, torch.float32, "host")
    monkeypatch.setattr(resident, "_host_room", lambda: 2000 * 80.0)
    held, said = placed(stream, place)
    assert "rounded to 16 bits" in said
    assert held.resident_bytes == 2000 * 76
    with pytest.raises(ValueError, match=r"2,000 rows take .* exact, .* rounded, and there is room for"):
        placed(stream, replace(place, dtype=torch.float64))


def test_words_are_checked():
    X = np.random.default_rng(0).normal(size=(50, 1))
    with pytest.raises(ValueError, match="cache must be one of"):
        xd.fit(X, 1, cache="disk")
    with pytest.raises(ValueError, match="keeps rows on a GPU"):
        xd.fit(X, 1, cache="device", device="cpu")
