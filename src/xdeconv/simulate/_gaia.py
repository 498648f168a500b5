"""Gaia-like rows, as many as one likes: a small model of what the satellite sees, with the truth kept.

A star is drawn without rejection. One uniform number picks a population and a line of sight from a cumulative table
(:mod:`xdeconv.simulate.tables`, made of the numbers in :mod:`xdeconv.simulate.sky`); another the distance, from that
line's own quantiles; another the absolute magnitude, from the population's luminosity function cut where dust and
distance put G at the limit. Colour follows from the population's sequences, velocity from rotation and dispersion,
errors from the magnitude and the scanning of the sky.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..rows.batch import Batch, packed_size
from ..system.streams import in_order
from ..system.threads import threads
from . import sky
from .stars import CHUNK, Draws, choose, products, stars
from .tables import tables

if TYPE_CHECKING:
    import pyarrow

LABELS = ("ra", "dec", "parallax", "pmra", "pmdec", "bp_rp", "phot_g_mean_mag")
UNITS = ("deg", "deg", "mas", "mas/yr", "mas/yr", "mag", "mag")
POPULATIONS = sky.NAMES
MAS_PER_DEGREE = 3.6e6
MAKERS = 8  # threads that make chunks for a file: one alone can write no more

# sigma(parallax)^2 = floor^2 + a z + b z^2 micro-arcsec^2, z = 10^(0.4 (G - 15)): Gaia's science performance page, DR3.
PARALLAX_ERROR = (14.0, 680.766, 32.732)
# Errors of ra cos dec, dec, parallax, pmra and pmdec over the parallax's: medians of EDR3 fields.
ERROR_RATIOS = (0.78, 0.73, 1.0, 1.02, 0.93)
ERROR_SCATTER, RATIO_SCATTER = 0.18, 0.08  # of ln sigma, from star to star: all five together, and each by itself
ERROR_TAIL = (1.7, 0.6)  # beyond 1.7 sigma the scatter grows by 0.6 a sigma: crowded and disturbed stars
SIX_PARAMETER_FACTOR = 1.15  # what fitting a colour along with the astrometry costs, by eye
TWO_PARAMETER_FACTOR, TWO_PARAMETER_SCATTER = 4.0, 0.7  # positions alone, by eye: more when bright, less when faint
G_ERROR = (2.5e-4, 1.1e-3, 0.28)  # mag: floor, at G = 17.5, and slope of log10 with G (EDR3 medians)
COLOUR_ERROR = (7e-4, 1.55e-2, 0.37)
BP_SHARE = 0.8  # of the variance of BP - RP that is BP's
# Probability against G: logistic middle and width, with a floor; shaped after Lindegren et al. (2021), EDR3.
TWO_PARAMETER = (20.72, 0.16, 0.03)
SIX_PARAMETER = (19.3, 0.45, 0.02)
NO_COLOUR = (20.95, 0.20, 0.03)
NO_COLOUR_WITHOUT_PARALLAX = 0.45  # crowded stars lack both
UNDERESTIMATED_FACTOR, UNDERESTIMATED_SCATTER = 2.0, 0.5  # true over quoted error: the least, and of its logarithm
RUWE = (1.01, 0.05)  # median, and scatter of its logarithm, of good solutions
OBLIQUITY = math.radians(23.4393)
CORRELATION_SCATTER, CORRELATION_WAVES = 0.10, 0.22  # the spread of EDR3's correlations, 0.14 to 0.29
SOLUTIONS = (3, 31, 95)  # astrometric_params_solved of two-, five- and six-parameter solutions


@dataclass(frozen=True)
class Simulated:
    """Rows as a catalogue has them, and what is true of them.

    Parameters
    ----------
    batch : Batch
        Observed values x (7, n) with NaN for missing; noise (28, n) packed, 0 where missing; degrees, mas, mas/yr,
        mag.
    truth : torch.Tensor (7, n)
        The values without noise, none missing.
    position : torch.Tensor (2, n)
        Observed ra and dec in float64: float32 cannot hold a milliarcsecond.
    population : torch.Tensor (n,)
        A place in ``POPULATIONS`` (int8).
    solution : torch.Tensor (n,)
        Gaia's astrometric_params_solved: 3, 31 or 95 (int8).
    ruwe : torch.Tensor (n,)
        Large where errors are underestimated (float32).
    first : int, default 0
        Number of the first row.
    labels : tuple of str, optional
        Names of the seven coordinates.
    units : tuple of str, optional
        Their units.
    """

    batch: Batch
    truth: Tensor
    position: Tensor
    population: Tensor
    solution: Tensor
    ruwe: Tensor
    first: int = 0
    labels: tuple[str, ...] = LABELS
    units: tuple[str, ...] = UNITS

    def to_table(self) -> pyarrow.Table:
        """The rows with the Gaia archive's columns, units and conventions.

        Returns
        -------
        pyarrow.Table
            One row per source; null where a value is missing.

        Examples
        --------
        >>> gaia(3).to_table().column_names[:3]
        ['source_id', 'random_index', 'ra']
        """
        import pyarrow

        columns = {name: value.cpu().numpy() for name, value in _archive(self).items()}
        nulls = {name: np.isnan(v) if v.dtype.kind == "f" else None for name, v in columns.items()}
        return pyarrow.table({name: pyarrow.array(v, mask=nulls[name]) for name, v in columns.items()})


def gaia(
    n: int,
    seed: int = 0,
    *,
    missing: bool = True,
    underestimated: float = 0.0,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Simulated:
    """Rows of the paper's seven columns as Gaia would list them; fewer rows are a prefix of more.

    Parameters
    ----------
    n : int
        How many rows.
    seed : int, default 0
        The same seed gives the same result.
    missing : bool, default True
        Whether parallaxes, proper motions and colours may be missing, as they are in Gaia.
    underestimated : float, default 0.0
        The fraction of rows whose true astrometric errors are at least twice the quoted ones.
    device : torch.device or str, default "cpu"
        Where the rows are made.
    dtype : torch.dtype, default torch.float32
        The number type of the rows.

    Returns
    -------
    Simulated
        The rows, and what is true of them.

    Examples
    --------
    >>> stars = gaia(1000, seed=1)
    >>> stars.batch, stars.truth.shape
    (Batch(rows=1000, p=7, d=7, noise=full, missing values), torch.Size([7, 1000]))
    """
    out = _empty(n, missing, torch.device(device), dtype)
    for c in range(-(-n // CHUNK)):
        _fill(out, c * CHUNK, min(n, (c + 1) * CHUNK), Draws(seed, c, out.batch.device), underestimated)
    return out


def gaia_chunk(
    seed: int,
    c: int,
    rows: int = CHUNK,
    *,
    missing: bool = True,
    underestimated: float = 0.0,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Simulated:
    """The first rows of a chunk, a pure function of (seed, c) and the kind of device: a billion rows need no disk.

    Parameters
    ----------
    seed : int
        The same seed gives the same result.
    c : int
        Number of the chunk.
    rows : int, optional
        How many of its rows, from the first.
    missing : bool, default True
        Whether parallaxes, proper motions and colours may be missing, as they are in Gaia.
    underestimated : float, default 0.0
        The fraction of rows whose true astrometric errors are at least twice the quoted ones.
    device : torch.device or str, default "cpu"
        Where the rows are made.
    dtype : torch.dtype, default torch.float32
        The number type of the rows.

    Returns
    -------
    Simulated
        The rows, and what is true of them.

    Examples
    --------
    >>> bool((gaia_chunk(0, 0, 10).truth == gaia(10).truth).all())
    True
    """
    if not 0 <= rows <= CHUNK:
        raise ValueError(f"rows must be between 0 and {CHUNK}, the size of a chunk; got {rows}")
    out = _empty(rows, missing, torch.device(device), dtype, first=c * CHUNK)
    _fill(out, 0, rows, Draws(seed, c, out.batch.device), underestimated)
    return out


def gaia_chunks(
    n: int,
    seed: int = 0,
    *,
    missing: bool = True,
    underestimated: float = 0.0,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Iterator[Simulated]:
    """The rows of :func:`gaia`, a chunk at a time, none kept.

    Parameters
    ----------
    n : int
        How many rows in all.
    seed : int, default 0
        The same seed gives the same result.
    missing : bool, default True
        Whether parallaxes, proper motions and colours may be missing, as they are in Gaia.
    underestimated : float, default 0.0
        The fraction of rows whose true astrometric errors are at least twice the quoted ones.
    device : torch.device or str, default "cpu"
        Where the rows are made.
    dtype : torch.dtype, default torch.float32
        The number type of the rows.

    Yields
    ------
    Simulated
        The rows of one chunk.

    Examples
    --------
    >>> sum(part.batch.n for part in gaia_chunks(300_000))
    300000
    """
    for c in range(-(-n // CHUNK)):
        rows = min(CHUNK, n - c * CHUNK)
        yield gaia_chunk(seed, c, rows, missing=missing, underestimated=underestimated, device=device, dtype=dtype)


def gaia_tables(n: int, seed: int = 0, *, device: torch.device | str = "cpu") -> Iterator[pyarrow.Table]:
    """The rows of :func:`gaia` with the archive's columns, a chunk at a time, made by all cores, none kept.

    Parameters
    ----------
    n : int
        How many rows in all.
    seed : int, default 0
        The same seed gives the same result, whatever the number of threads.
    device : torch.device or str, default "cpu"
        Where the rows are made.

    Yields
    ------
    pyarrow.Table
        The rows of one chunk.

    Examples
    --------
    >>> sum(table.num_rows for table in gaia_tables(300_000))
    300000
    """
    tables(str(torch.device(device)))  # once, before threads ask for them

    def made(c: int) -> pyarrow.Table:
        return gaia_chunk(seed, c, min(CHUNK, n - c * CHUNK), device=device).to_table()

    chunks = range(-(-n // CHUNK))
    if torch.device(device).type != "cpu":
        return map(made, chunks)
    return in_order([partial(iter, [c]) for c in chunks], made, min(threads(), MAKERS))


def _fill(out: Simulated, start: int, stop: int, draw: Draws, underestimated: float) -> None:
    """Write a chunk, or its beginning, into the rows from start to stop, one block after the other."""
    if not 0 <= underestimated <= 1:
        raise ValueError(f"underestimated is a fraction of rows, between 0 and 1; got {underestimated}")
    cells = choose(draw, tables(str(draw.device)))
    targets = [row for t in _tensors(out) for row in t.view(-1, out.batch.n)]
    for at in range(start, stop, draw.rows):
        values = _block(draw, cells[at - start : at - start + draw.rows], out.batch.missing, underestimated)
        for value, target in zip(values, targets, strict=True):
            target[at : min(at + draw.rows, stop)] = value[: stop - at]


def _block(draw: Draws, cells: Tensor, missing: bool, underestimated: float) -> list[Tensor]:
    """The rows of a block's x, noise, truth, position, population, solution and ruwe, in that order."""
    truth, population = stars(draw, tables(str(draw.device)), cells)
    solution, lost = _solutions(draw, truth[6], missing)
    L, sigma = _errors(draw, truth, solution)
    factor = _underestimation(draw, underestimated)
    unit = torch.cat([_multiply(L, draw.normal(5)) * factor, draw.normal(2)])
    x = truth.double() + (unit * sigma).double()
    ruwe = RUWE[0] * torch.exp(RUWE[1] * draw.normal(1)[0]) * factor
    return [*x.masked_fill(lost, math.nan), *_pack(L, sigma, lost), *truth, *x[:2], population, solution, ruwe]


def _logistic(G: Tensor, curve: tuple[float, float, float]) -> Tensor:
    middle, width, floor = curve
    return floor + (1 - floor) * torch.sigmoid((G - middle) / width)


def _solutions(draw: Draws, G: Tensor, missing: bool) -> tuple[Tensor, Tensor]:
    """Gaia's astrometric_params_solved (n,) int8, and which of the seven values are missing (7, n)."""
    kind, colour, both = draw.uniform(3)
    six = _logistic(G, SIX_PARAMETER)
    two = _logistic(G, TWO_PARAMETER) if missing else torch.zeros_like(six)
    is_two = kind < two
    is_six = kind < two + (1 - two) * six
    solution = torch.where(is_two, SOLUTIONS[0], torch.where(is_six, SOLUTIONS[2], SOLUTIONS[1])).to(torch.int8)
    no_colour = (colour < _logistic(G, NO_COLOUR)) | (is_two & (both < NO_COLOUR_WITHOUT_PARALLAX))
    never = torch.zeros_like(is_two)
    return solution, torch.stack([never, never, is_two, is_two, is_two, no_colour & missing, never])


def _errors(draw: Draws, truth: Tensor, solution: Tensor) -> tuple[list[list[Tensor]], Tensor]:
    """The Cholesky factor of the five astrometric correlations, row by row, and all seven sigmas (7, n)."""
    ra, dec, G = torch.deg2rad(truth[0]), torch.deg2rad(truth[1]), truth[6]
    x, y, z = torch.cos(dec) * torch.cos(ra), torch.cos(dec) * torch.sin(ra), torch.sin(dec)
    y, z = math.cos(OBLIQUITY) * y + math.sin(OBLIQUITY) * z, math.cos(OBLIQUITY) * z - math.sin(OBLIQUITY) * y
    # Most scans 45 degrees from the ecliptic, fewest at it.
    scans = 1.12 - 0.35 * torch.exp(-(((z.abs() - 0.71) / 0.13) ** 2)) - 0.15 * z**2
    floor, a, b = PARALLAX_ERROR
    flux = 10 ** (0.4 * (G - 15))
    base = 1e-3 * (floor**2 + a * flux + b * flux**2).sqrt() * scans * _spread(draw.normal(1)[0])
    six, two = solution == SOLUTIONS[2], solution == SOLUTIONS[0]
    worse = TWO_PARAMETER_FACTOR * torch.exp(TWO_PARAMETER_SCATTER * draw.normal(1)[0])
    base = base * torch.where(six, SIX_PARAMETER_FACTOR, torch.where(two, worse, 1.0))
    ratios = [ratio * torch.exp(RATIO_SCATTER * z) for ratio, z in zip(ERROR_RATIOS, draw.normal(5), strict=True)]
    curves = zip((COLOUR_ERROR, G_ERROR), draw.normal(2), strict=True)
    photometric = [_photometric_error(G, curve) * _spread(z) for curve, z in curves]
    sigma = torch.stack([*(base * ratio for ratio in ratios), *photometric])
    sigma[0] /= MAS_PER_DEGREE * torch.cos(dec).clamp(min=1e-6)
    sigma[1] /= MAS_PER_DEGREE
    return _correlations(draw, torch.stack([x, y, z])), sigma


def _spread(z: Tensor) -> Tensor:
    """A log-normal factor with a tail of large errors."""
    start, slope = ERROR_TAIL
    return torch.exp(ERROR_SCATTER * z + slope * (z - start).clamp(min=0))


def _photometric_error(G: Tensor, curve: tuple[float, float, float]) -> Tensor:
    floor, at, slope = curve
    return (floor**2 + (at * 10 ** (slope * (G - 17.5))) ** 2).sqrt()


def _correlations(draw: Draws, direction: Tensor) -> list[list[Tensor]]:
    """Cholesky factors with rows of length one: waves over the sky, as the scanning law makes, and scatter."""
    fixed = torch.Generator().manual_seed(5)
    vectors, phases = 3.0 * torch.randn(10, 3, generator=fixed), 6.3 * torch.rand(10, generator=fixed)
    along = products(tuple(map(tuple, vectors.tolist())), direction)
    waves = [CORRELATION_WAVES * torch.sin(a + phase) for a, phase in zip(along, phases.tolist(), strict=True)]
    below = [wave + CORRELATION_SCATTER * z for wave, z in zip(waves, draw.normal(10), strict=True)]
    rows = [below[i * (i - 1) // 2 : i * (i + 1) // 2] for i in range(5)]
    lengths = [sum((v**2 for v in row), torch.ones_like(direction[0])).rsqrt() for row in rows]
    return [[v * length for v in row] + [length] for row, length in zip(rows, lengths, strict=True)]


def _multiply(L: list[list[Tensor]], z: Tensor) -> Tensor:
    return torch.stack([sum((v * z[j] for j, v in enumerate(row)), torch.zeros_like(z[0])) for row in L])


def _pack(L: list[list[Tensor]], sigma: Tensor, lost: Tensor) -> list[Tensor]:
    """Packed lower triangles, 28 of (n,), of the covariances, 0 where a value is missing; photometry is independent."""
    sigma = sigma.masked_fill(lost, 0.0)
    out = [torch.zeros_like(sigma[0])] * packed_size(7)
    for a in range(5):
        for b in range(a + 1):
            correlation = sum((L[a][j] * L[b][j] for j in range(b + 1)), torch.zeros_like(sigma[0]))
            out[packed_size(a) + b] = correlation * sigma[a] * sigma[b]
    out[packed_size(5) + 5], out[packed_size(6) + 6] = sigma[5] ** 2, sigma[6] ** 2
    return out


def _underestimation(draw: Draws, fraction: float) -> Tensor:
    """True over quoted astrometric error, (n,)."""
    factor = UNDERESTIMATED_FACTOR * torch.exp(UNDERESTIMATED_SCATTER * draw.normal(1)[0].abs())
    return torch.where(draw.uniform(1)[0] < fraction, factor, 1.0)


def _archive(s: Simulated) -> dict[str, Tensor]:
    """The archive's columns (n,), NaN where missing; positions' errors in mas, ra's of ra cos dec."""
    observed = ~torch.isnan(s.batch.x)
    assert s.batch.noise is not None
    noise = s.batch.noise.double()
    sigma = [torch.where(observed[i], noise[packed_size(i) + i].sqrt(), math.nan) for i in range(7)]
    index = torch.arange(s.first, s.first + s.batch.n, device=s.batch.device)
    ra, dec = torch.remainder(s.position[0], 360.0), s.position[1]
    out = {"source_id": index + 1, "random_index": index, "ra": ra, "dec": dec}
    out |= {name: s.batch.x[i].float() for i, name in enumerate(LABELS) if i > 1}
    archive = [sigma[0] * MAS_PER_DEGREE * torch.cos(torch.deg2rad(dec)), sigma[1] * MAS_PER_DEGREE, *sigma[2:5]]
    out |= {f"{name}_error": e.float() for name, e in zip(LABELS, archive, strict=False)}
    for b in range(5):
        for a in range(b + 1, 5):
            correlation = noise[packed_size(a) + b] / (sigma[a] * sigma[b])
            out[f"{LABELS[b]}_{LABELS[a]}_corr"] = correlation.float()
    magnitude_of_ratio = 2.5 / math.log(10.0)
    shares = {"g": (6, 1.0), "bp": (5, BP_SHARE), "rp": (5, 1 - BP_SHARE)}
    for band, (i, share) in shares.items():
        out[f"phot_{band}_mean_flux_over_error"] = (magnitude_of_ratio / (sigma[i] * math.sqrt(share))).float()
    out["astrometric_params_solved"] = s.solution
    out["ruwe"] = torch.where(observed[2], s.ruwe, math.nan)
    return out


def _tensors(s: Simulated) -> list[Tensor]:
    assert s.batch.noise is not None
    return [s.batch.x, s.batch.noise, s.truth, s.position, s.population, s.solution, s.ruwe]


def _empty(n: int, missing: bool, device: torch.device, dtype: torch.dtype, first: int = 0) -> Simulated:
    def new(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
        return torch.empty(*shape, n, device=device, dtype=dtype)

    return Simulated(
        batch=Batch(x=new(7), noise=new(packed_size(7)), missing=missing),
        truth=new(7),
        position=new(2, dtype=torch.float64),
        population=new(dtype=torch.int8),
        solution=new(dtype=torch.int8),
        ruwe=new(dtype=torch.float32),
        first=first,
    )
