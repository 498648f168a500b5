"""Small catalogues with Gaia's names for tests, made in memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

FEATURES = ["ra", "dec", "parallax", "pmra", "pmdec", "bp_rp", "phot_g_mean_mag"]
ASTROMETRY = FEATURES[:5]


def gaia_like(n: int = 500, seed: int = 0, missing: bool = True) -> dict[str, np.ndarray]:
    """Columns as the archive has them: float32 but for positions, NaN where missing."""
    rng = np.random.default_rng(seed)
    out: dict[str, np.ndarray] = {
        "source_id": 4_611_686_018_427_387_904 + np.arange(n),
        "random_index": rng.permutation(n),
        "ra": rng.uniform(40, 60, n),
        "dec": rng.uniform(10, 30, n),
        "parallax": rng.gamma(2.0, 1.0, n),
        "pmra": rng.normal(3, 5, n),
        "pmdec": rng.normal(-4, 5, n),
        "bp_rp": rng.normal(1, 0.4, n),
        "phot_g_mean_mag": rng.uniform(8, 20, n),
    }
    for name in ASTROMETRY:
        out[f"{name}_error"] = rng.gamma(4.0, 0.02, n)
    A = rng.normal(size=(n, 5, 7))
    C = A @ A.transpose(0, 2, 1)
    sd = np.sqrt(np.einsum("naa->na", C))
    for b in range(5):
        for a in range(b + 1, 5):
            out[f"{ASTROMETRY[b]}_{ASTROMETRY[a]}_corr"] = C[:, a, b] / (sd[:, a] * sd[:, b])
    for band in ("g", "bp", "rp"):
        out[f"phot_{band}_mean_flux_over_error"] = rng.uniform(20, 2000, n)
    out["ruwe"] = rng.gamma(50.0, 0.02, n)
    if missing:
        lost = rng.uniform(size=n) < 0.1
        for name in out:
            if any(word in name for word in ("parallax", "pmra", "pmdec")):
                out[name][lost] = np.nan
        colourless = rng.uniform(size=n) < 0.1
        for name in ("bp_rp", "phot_bp_mean_flux_over_error"):
            out[name][colourless] = np.nan
    wide = ("source_id", "random_index", "ra", "dec")
    return {name: v if name in wide else v.astype(np.float32) for name, v in out.items()}


def arrow_table(columns: dict[str, np.ndarray], nulls: bool = True) -> pa.Table:
    """The same as an Arrow table, with null for NaN."""
    masks = {name: np.isnan(v) if nulls and v.dtype.kind == "f" else None for name, v in columns.items()}
    return pa.table({name: pa.array(v, mask=masks[name]) for name, v in columns.items()})


def dense_noise(columns: dict[str, np.ndarray]) -> np.ndarray:
    """Covariances (n, 7, 7) of the paper's features, written out the slow way; 0 where a value is missing."""
    c = {name: v.astype(float) for name, v in columns.items()}
    n = len(c["ra"])
    sd = {name: c[f"{name}_error"] for name in ASTROMETRY}
    sd["ra"] = sd["ra"] / 3.6e6 / np.cos(np.radians(c["dec"]))
    sd["dec"] = sd["dec"] / 3.6e6
    S = np.zeros((n, 7, 7))
    for i, a in enumerate(ASTROMETRY):
        for j, b in enumerate(ASTROMETRY):
            r = 1.0 if i == j else c.get(f"{a}_{b}_corr", c.get(f"{b}_{a}_corr"))
            S[:, i, j] = r * sd[a] * sd[b]
    per = 2.5 / np.log(10)
    ratio = {band: per / c[f"phot_{band}_mean_flux_over_error"] for band in ("g", "bp", "rp")}
    S[:, 5, 5], S[:, 6, 6] = ratio["bp"] ** 2 + ratio["rp"] ** 2, ratio["g"] ** 2
    x = np.stack([c[name] for name in FEATURES], axis=1)
    seen = ~np.isnan(x)
    return np.where(seen[:, :, None] & seen[:, None, :], S, 0.0)
