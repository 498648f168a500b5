"""Simulated Gaia rows: repeatable, consistent with their own noise, and with the sky's landmarks in place."""

from __future__ import annotations

import pytest
import torch

from xdeconv.rows.batch import packed_size
from xdeconv.rows.galactic import ICRS_TO_GALACTIC
from xdeconv.simulate import _gaia as simulate
from xdeconv.simulate._gaia import CHUNK, LABELS, POPULATIONS, Simulated, gaia, gaia_chunk, gaia_chunks


@pytest.fixture(scope="module")
def stars(device: str) -> Simulated:
    return gaia(CHUNK + 5000, seed=1, device=device, dtype=torch.float64)


@pytest.fixture(scope="module")
def complete(device: str) -> Simulated:
    return gaia(60_000, seed=2, missing=False, device=device, dtype=torch.float64)


def whitened(s: Simulated) -> torch.Tensor:
    factor = torch.linalg.cholesky(s.batch.covariance())
    return torch.linalg.solve_triangular(factor, (s.batch.x - s.truth).T[..., None], upper=False)[..., 0]


def members(s: Simulated, *names: str) -> torch.Tensor:
    places = torch.tensor([POPULATIONS.index(name) for name in names], device=s.population.device)
    return torch.isin(s.population.long(), places)


def same(a: Simulated, b: Simulated, rows: int) -> bool:
    pairs = zip(simulate._tensors(a), simulate._tensors(b), strict=True)
    return all(torch.equal(x[..., :rows].nan_to_num(-1), y[..., :rows].nan_to_num(-1)) for x, y in pairs)


@pytest.mark.sampled
@pytest.mark.parametrize("n", [0, 1, 17, 1000, CHUNK, CHUNK + 1])
def test_fewer_rows_are_a_prefix_of_more(stars: Simulated, n: int, device: str) -> None:
    few = gaia(n, seed=1, device=device, dtype=torch.float64)
    assert few.batch.n == n
    assert same(few, stars, n)


def test_a_chunk_depends_on_nothing_but_seed_and_place(stars: Simulated, device: str) -> None:
    torch.manual_seed(3)
    chunk = gaia_chunk(1, 1, 5000, device=device, dtype=torch.float64)
    tail = torch.cat([stars.truth[:, CHUNK:], stars.batch.x[:, CHUNK:].nan_to_num(-1)])
    assert torch.equal(torch.cat([chunk.truth, chunk.batch.x.nan_to_num(-1)]), tail)
    assert chunk.first == CHUNK
    assert not torch.equal(chunk.truth[6], stars.truth[6, :5000])
    assert not torch.equal(gaia_chunk(2, 1, 5000, device=device).truth[6], chunk.truth[6].float())


def test_chunks_are_the_rows_of_the_whole(stars: Simulated, device: str) -> None:
    parts = list(gaia_chunks(CHUNK + 5000, seed=1, device=device, dtype=torch.float64))
    assert torch.equal(torch.cat([p.truth for p in parts], dim=1), stars.truth)


def test_noise_is_what_was_added(complete: Simulated) -> None:
    w = whitened(complete)
    n = len(w)
    assert not torch.isnan(w).any()
    torch.testing.assert_close(
        w.T @ w / n, torch.eye(7, dtype=w.dtype, device=w.device), rtol=0, atol=5 * (2 / n) ** 0.5
    )
    assert w.mean(0).abs().max() < 5 * n**-0.5
    assert float((w**2).sum(1).mean()) == pytest.approx(7, abs=5 * (14 / n) ** 0.5)
    inside = (w.abs() < 1).double().mean(0)
    assert ((inside - 0.6827).abs() < 5 * (0.217 / n) ** 0.5).all()


def test_underestimated_errors_are_too_small_and_flagged(device: str) -> None:
    s = gaia(30_000, missing=False, underestimated=0.05, device=device, dtype=torch.float64)
    flagged = s.ruwe > 1.5
    assert float(flagged.double().mean()) == pytest.approx(0.05, abs=0.01)
    w = whitened(s)
    astrometric = (w[:, :5] ** 2).mean(1)
    assert astrometric[flagged].mean() > 4
    assert float(astrometric[~flagged].mean()) == pytest.approx(1, abs=0.03)
    assert float((w[flagged, 5:] ** 2).mean()) == pytest.approx(1, abs=0.2)


def test_missing_values_come_as_gaia_has_them(stars: Simulated) -> None:
    lost = stars.batch.x.isnan()
    assert not lost[[0, 1, 6]].any()
    assert torch.equal(lost[2], lost[3])
    assert torch.equal(lost[2], lost[4])
    assert torch.equal(lost[2], stars.solution == 3)
    assert 0.05 < lost[2].double().mean() < 0.25
    assert 0.05 < lost[5].double().mean() < 0.25
    faint = stars.truth[6] > 20.5
    assert lost[2][faint].double().mean() > 3 * lost[2][~faint].double().mean()
    assert set(stars.solution.unique().tolist()) == {3, 31, 95}


def test_noise_of_missing_values_is_zero_and_of_the_rest_positive_definite(stars: Simulated) -> None:
    batch = stars.batch.rows(slice(0, 20_000))
    S, lost = batch.covariance(), batch.x.isnan().T
    assert (S[lost[:, :, None] | lost[:, None, :]] == 0).all()
    observed = S + torch.diag_embed(lost.to(S.dtype))
    scale = observed.diagonal(dim1=1, dim2=2).sqrt()
    correlation = observed / (scale[:, :, None] * scale[:, None, :])
    assert torch.linalg.eigvalsh(correlation).min() > 1e-3


def test_errors_grow_with_magnitude(complete: Simulated) -> None:
    assert complete.batch.noise is not None
    G = complete.truth[6]
    for i, bright, faint in [
        (2, (0.01, 0.06), (0.3, 1.0)),
        (5, (0.0005, 0.006), (0.05, 0.3)),
        (6, (2e-4, 1e-3), (3e-3, 0.02)),
    ]:
        sigma = complete.batch.noise[packed_size(i) + i].sqrt()
        assert bright[0] < sigma[(G > 14) & (G < 15.5)].median() < bright[1]
        assert faint[0] < sigma[(G > 20) & (G < 20.5)].median() < faint[1]


def test_values_are_of_the_sky(stars: Simulated) -> None:
    ra, dec, parallax, _, _, colour, G = stars.truth
    assert 0 <= ra.min() < 1 < 359 < ra.max() < 360
    assert -90 <= dec.min() < -85 < 85 < dec.max() <= 90
    assert parallax.min() > 0
    assert stars.batch.x[2].nan_to_num().min() < 0
    assert 2 < G.min() < 11
    assert 20.8 < G.max() <= 21.0001
    assert -0.8 < colour.min() < 0 < 3 < colour.max() < 15


def test_the_clouds_are_where_they_should_be_and_move_as_they_should(stars: Simulated) -> None:
    for name, ra, dec, pmra, pmdec in [("LMC", 81, -69, 1.8, 0.4), ("SMC", 13, -73, 0.7, -1.2)]:
        v = stars.truth[:, members(stars, name)]
        assert v.shape[1] > 100
        middle = v.median(dim=1).values
        assert float(middle[0]) == pytest.approx(ra, abs=2)
        assert float(middle[1]) == pytest.approx(dec, abs=1)
        assert middle[2] < 0.025
        assert float(middle[3]) == pytest.approx(pmra, abs=0.3)
        assert float(middle[4]) == pytest.approx(pmdec, abs=0.3)
    near = torch.hypot((stars.truth[0] - 81) * 0.358, stars.truth[1] + 69.3) < 3
    assert members(stars, "LMC", "LMC bar")[near].double().mean() > 0.5


def test_proper_motions_show_the_sun_s_motion_and_the_galaxy_s_rotation(stars: Simulated) -> None:
    ra, dec = torch.deg2rad(stars.truth[0]), torch.deg2rad(stars.truth[1])
    east = torch.stack([-ra.sin(), ra.cos(), 0 * ra])
    north = torch.stack([-dec.sin() * ra.cos(), -dec.sin() * ra.sin(), dec.cos()])
    proper = stars.truth[3] * east + stars.truth[4] * north
    to_galactic = torch.tensor(ICRS_TO_GALACTIC, dtype=torch.float64, device=ra.device)
    near = stars.truth[2] > 2.5
    transverse = (to_galactic @ (proper * 4.74047 / stars.truth[2]))[:, near].mean(1)
    r = to_galactic @ torch.stack([dec.cos() * ra.cos(), dec.cos() * ra.sin(), dec.sin()])[:, near]
    projection = torch.eye(3, dtype=r.dtype, device=r.device) - r @ r.T / r.shape[1]
    U, V, W = torch.linalg.solve(projection, -transverse).tolist()
    assert pytest.approx(11.1, abs=4) == U
    assert pytest.approx(12.2 + 16, abs=8) == V  # and the asymmetric drift of the stars
    assert pytest.approx(7.25, abs=3) == W
    centre = members(stars, "bulge")
    assert float(proper[:, centre].mean(1).norm()) == pytest.approx(6.3, abs=0.7)  # Sgr A*: 6.4 mas/yr


def test_table_has_the_archive_s_conventions(stars: Simulated) -> None:
    rows = gaia(4000, seed=1, device=stars.batch.device, dtype=torch.float64)
    table = rows.to_table()
    column = {name: torch.tensor(table[name].to_numpy()) for name in table.column_names}
    assert table["ra"].type == "double"
    assert table["parallax"].null_count == int(rows.batch.x[2].isnan().sum()) == table["parallax_pmra_corr"].null_count
    assert (
        table["bp_rp"].null_count
        == int(rows.batch.x[5].isnan().sum())
        == table["phot_bp_mean_flux_over_error"].null_count
    )
    error = [column[f"{name}_error"].double() for name in LABELS[:5]]
    error[0] = error[0] / 3.6e6 / torch.cos(torch.deg2rad(column["dec"]))
    error[1] = error[1] / 3.6e6
    ratio = {band: column[f"phot_{band}_mean_flux_over_error"].double() for band in ("g", "bp", "rp")}
    error += [1.0857362 * torch.hypot(1 / ratio["bp"], 1 / ratio["rp"]), 1.0857362 / ratio["g"]]
    assert rows.batch.noise is not None
    noise = rows.batch.noise.cpu()
    for a in range(7):
        for b in range(a + 1):
            packed = noise[packed_size(a) + b]
            correlation = 1.0 if a == b else column[f"{LABELS[b]}_{LABELS[a]}_corr"].double() if a < 5 else 0.0
            expected = torch.nan_to_num(correlation * error[a] * error[b])
            size = (noise[packed_size(a) + a] * noise[packed_size(b) + b]).sqrt()
            assert ((packed - expected).abs() <= 2e-6 * size).all(), (a, b)
    x = rows.batch.x.cpu()
    for i, name in enumerate(LABELS):
        torch.testing.assert_close(column[name].to(x.dtype), x[i], rtol=1e-6, atol=1e-6, equal_nan=True)
    assert (column["ra"] - torch.remainder(rows.position[0].cpu(), 360)).abs().max() == 0
    assert column["source_id"].unique().numel() == 4000
    assert column["random_index"].tolist() == list(range(4000))


def test_types(device: str) -> None:
    s = gaia(100, device=device)
    assert s.batch.noise is not None
    assert s.batch.dtype == s.batch.noise.dtype == s.truth.dtype == torch.float32
    assert s.position.dtype == torch.float64
    assert s.batch.device.type == torch.device(device).type
    wide = gaia(100, device=device, dtype=torch.float64)
    torch.testing.assert_close(wide.batch.x.float(), s.batch.x, equal_nan=True)
    assert s.labels == LABELS
    assert len(s.units) == 7


def test_errors_say_what_to_do() -> None:
    with pytest.raises(ValueError, match="fraction of rows"):
        gaia(10, underestimated=5)
    with pytest.raises(ValueError, match="size of a chunk"):
        gaia_chunk(0, 0, CHUNK + 1)


@pytest.mark.slow
def test_tables_are_the_same_whatever_the_number_of_threads(monkeypatch):
    from xdeconv.simulate import _gaia

    n = _gaia.CHUNK + 1000
    found = []
    for many in (1, 3):
        monkeypatch.setattr(_gaia, "threads", lambda many=many: many)
        found.append(list(_gaia.gaia_tables(n, 7)))
    assert all(a.equals(b) for a, b in zip(*found, strict=True))
    assert found[0][0].equals(_gaia.gaia_chunk(7, 0).to_table())
    assert sum(table.num_rows for table in found[0]) == n
