"""Gaia-like rows, as many as one likes: a small model of what the satellite sees, with the truth kept.

A star is drawn without rejection. One uniform number picks a population and a line of sight from a cumulative table
(:mod:`xdeconv.simulate_sky`); a second the distance, from that line's own quantiles; a third the absolute magnitude,
from the population's luminosity function cut where dust and distance put G at the limit. Colour follows from the
population's sequences, velocity from rotation and dispersion, errors from the magnitude and the scanning of the sky.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from . import simulate_sky as sky
from .batch import Batch, packed_size

if TYPE_CHECKING:
    import pyarrow

LABELS = ("ra", "dec", "parallax", "pmra", "pmdec", "bp_rp", "phot_g_mean_mag")
UNITS = ("deg", "deg", "mas", "mas/yr", "mas/yr", "mag", "mag")
POPULATIONS = sky.NAMES
CHUNK = 1 << 18
MAS_PER_DEGREE = 3.6e6

# sigma(parallax)^2 = floor^2 + a z + b z^2 micro-arcsec^2, z = 10^(0.4 (G - 15)): Gaia's science performance page, DR3.
PARALLAX_ERROR = (14.0, 680.766, 32.732)
ERROR_RATIOS = (
    0.78,
    0.73,
    1.0,
    1.02,
    0.93,
)  # of ra cos dec, dec, parallax, pmra, pmdec to the parallax's: EDR3 medians
ERROR_SCATTER, RATIO_SCATTER = 0.18, 0.08  # of ln sigma, from star to star: all five together, and each by itself
SIX_PARAMETER_FACTOR = 1.15  # a colour fitted along with the astrometry costs this much (Lindegren et al. 2021)
TWO_PARAMETER_FACTOR, TWO_PARAMETER_SCATTER = 4.0, 0.7  # positions alone: EDR3 medians
G_ERROR = (2.5e-4, 1.1e-3, 0.28)  # mag: floor, at G = 17.5, and slope of log10 with G (EDR3 medians)
COLOUR_ERROR = (7e-4, 1.55e-2, 0.37)
BP_SHARE = 0.8  # of the variance of BP - RP that is BP's
# Probability against G: logistic middle and width, with a floor (fractions of EDR3, Lindegren et al. 2021, table 1).
TWO_PARAMETER = (20.87, 0.14, 0.02)
SIX_PARAMETER = (19.3, 0.45, 0.02)
NO_COLOUR = (21.0, 0.20, 0.02)
NO_COLOUR_WITHOUT_PARALLAX = 0.45  # crowded stars lack both
BINARY_SHARE, BINARY_BRIGHTENING = 0.35, 0.75
UNDERESTIMATED_FACTOR, UNDERESTIMATED_SCATTER = (
    2.0,
    0.5,
)  # true over quoted error: at least 2, half-normal in the logarithm
RUWE = (1.01, 0.05)
OBLIQUITY = math.radians(23.4393)
CORRELATION_SCATTER, CORRELATION_WAVES = 0.10, 0.22
SOLUTIONS = (3, 31, 95)  # astrometric_params_solved of two-, five- and six-parameter solutions


@dataclass(frozen=True)
class Simulated:
    """n rows as a catalogue has them, and what is true of them.

    batch       x (7, n) with NaN for missing; noise (28, n) packed, 0 where missing; degrees, mas, mas/yr, mag
    truth       (7, n)   the values without noise, none missing
    position    (2, n)   observed ra, dec in float64: float32 cannot hold a milliarcsecond
    population  (n,)     int8, a place in POPULATIONS
    solution    (n,)     int8, Gaia's astrometric_params_solved: 3, 31 or 95
    ruwe        (n,)     float32, large where errors are underestimated
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
        """The rows as a pyarrow table with the Gaia archive's columns, units and conventions; null where missing.

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
    """n rows of the paper's seven columns as Gaia would list them; fewer rows are a prefix of more.

    ``missing=False`` gives every row five or six astrometric parameters and a colour. A fraction ``underestimated``
    of the rows has true astrometric errors at least twice the quoted ones.

    >>> stars = gaia(1000, seed=1)
    >>> stars.batch, stars.truth.shape
    (Batch(rows=1000, p=7, d=7, noise=full, missing values), torch.Size([7, 1000]))
    """
    out = _empty(n, missing, torch.device(device), dtype)
    for c in range(-(-n // CHUNK)):
        rows = slice(c * CHUNK, min(n, (c + 1) * CHUNK))
        part = gaia_chunk(
            seed, c, rows.stop - rows.start, missing=missing, underestimated=underestimated, device=device, dtype=dtype
        )
        for to, values in zip(_tensors(out), _tensors(part), strict=True):
            to[..., rows] = values
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
    """The first rows of chunk c, a pure function of (seed, c) and the kind of device: a billion rows need no disk.

    >>> bool((gaia_chunk(0, 0, 10).truth == gaia(10).truth).all())
    True
    """
    if not 0 <= rows <= CHUNK:
        raise ValueError(f"rows must be between 0 and {CHUNK}, the size of a chunk; got {rows}")
    if not 0 <= underestimated <= 1:
        raise ValueError(f"underestimated is a fraction of rows, between 0 and 1; got {underestimated}")
    draw = _Draws(seed, c, rows, torch.device(device))
    tables = sky.tables(str(draw.device))
    truth, population = _stars(draw, tables)
    solution, no_colour = _solutions(draw, truth[6], missing)
    L, sigma = _errors(draw, truth, solution)
    factor = _underestimation(draw, underestimated)
    noise = _pack(L, sigma)
    error = _multiply(L, draw.normal(5)) * sigma[:5] * factor
    photometric = draw.normal(2) * sigma[5:]
    position = truth[:2].double() + error[:2].double()
    x = torch.cat([position, truth[2:].double() + torch.cat([error[2:], photometric]).double()]).to(dtype)
    two = solution == SOLUTIONS[0]
    lost = torch.stack([two & False, two & False, two, two, two, no_colour, two & False])
    x.masked_fill_(lost, math.nan)
    a, b = torch.tril_indices(7, 7, device=draw.device)
    noise.masked_fill_(lost[a] | lost[b], 0.0)
    batch = Batch(x=x, noise=noise.to(dtype), missing=missing)
    ruwe = RUWE[0] * torch.exp(RUWE[1] * draw.normal(1)[0]) * factor
    return Simulated(batch, truth.to(dtype), position, population, solution, ruwe, first=c * CHUNK)


def gaia_chunks(n: int, seed: int = 0, **options: object) -> Iterator[Simulated]:
    """The rows of :func:`gaia`, a chunk at a time, none kept.

    >>> sum(part.batch.n for part in gaia_chunks(300_000))
    300000
    """
    for c in range(-(-n // CHUNK)):
        yield gaia_chunk(seed, c, min(CHUNK, n - c * CHUNK), **options)  # type: ignore[arg-type]


class _Draws:
    """Random numbers of one chunk, always drawn for the whole chunk so that fewer rows are a prefix of more."""

    def __init__(self, seed: int, c: int, rows: int, device: torch.device) -> None:
        # Torch's CPU generator keeps 32 bits of a seed: neighbours, not hashes, so that no two chunks collide.
        start = int(np.random.SeedSequence(seed).generate_state(1)[0])
        self.generator = torch.Generator(device).manual_seed((start + c) % (1 << 32))
        self.rows, self.device = rows, device

    def uniform(self, k: int, dtype: torch.dtype = torch.float32) -> Tensor:
        u = torch.rand(k, CHUNK, generator=self.generator, device=self.device, dtype=dtype)
        return u[:, : self.rows]

    def normal(self, k: int) -> Tensor:
        return torch.randn(k, CHUNK, generator=self.generator, device=self.device)[:, : self.rows]


@dataclass(frozen=True)
class _Chosen:
    """Per star (n,): of the field or not, its cell and line of sight or its object (18, n), its population and name."""

    field: Tensor
    cell: Tensor
    line: Tensor
    object: Tensor
    population: Tensor
    name: Tensor


def _choose(draw: _Draws, t: sky.Tables) -> _Chosen:
    lines, kinds = sky.LONGITUDES * sky.LATITUDES, len(sky.FIELD)
    at = torch.searchsorted(t.cells, draw.uniform(1, torch.float64)[0].contiguous(), right=True)
    at = at.clamp(max=len(t.cells) - 1)
    field = at < kinds * lines
    which = (at - kinds * lines).clamp(min=0)
    cell = torch.where(field, at, 0)
    objects = t.objects.T[:, which]
    population = torch.where(field, cell // lines, objects[17].long())
    name = torch.where(field, cell // lines, kinds + which).to(torch.int8)
    return _Chosen(field, cell, cell % lines, objects, population, name)


def _stars(draw: _Draws, t: sky.Tables) -> tuple[Tensor, Tensor]:
    """True values (7, n) float32 of what Gaia sees, and each star's place in POPULATIONS."""
    chosen = _choose(draw, t)
    direction, distance = _places(draw, t, chosen)
    velocity = _velocities(draw, t, chosen, direction * distance)
    G, colour = _photometry(draw, t, chosen, distance)
    to_icrs = torch.tensor(sky.TO_GALACTIC, device=draw.device).T
    (x, y, z), v = to_icrs @ direction, to_icrs @ velocity
    equator = torch.hypot(x, y).clamp(min=1e-7)
    c, s = x / equator, y / equator
    ra = torch.remainder(torch.rad2deg(torch.atan2(y, x)), 360.0)
    dec = torch.rad2deg(torch.atan2(z, equator))
    per_kpc = 1 / (sky.KMS_PER_MASYR_KPC * distance)
    pmra = (c * v[1] - s * v[0]) * per_kpc
    pmdec = (equator * v[2] - z * (c * v[0] + s * v[1])) * per_kpc
    return torch.stack([ra, dec, 1 / distance, pmra, pmdec, colour, G]), chosen.name


def _places(draw: _Draws, t: sky.Tables, chosen: _Chosen) -> tuple[Tensor, Tensor]:
    """Unit vectors (3, n), Galactic, and distances (n,) in kpc."""
    # Triangular jitter over neighbouring cells: the sky is the table's linear interpolation.
    jitter = draw.uniform(4)
    l = (chosen.line // sky.LATITUDES + jitter[0] + jitter[1] - 0.5) * (2 * math.pi / sky.LONGITUDES)
    row = chosen.line % sky.LATITUDES + jitter[2] + jitter[3] - 0.5
    b = sky.latitude(sky.LATITUDES - (sky.LATITUDES - row.abs()).abs())
    in_field = torch.stack([torch.cos(b) * torch.cos(l), torch.cos(b) * torch.sin(l), torch.sin(b)])
    # t of density 12 t^2 (1 - t), that of the quantiles' spacing, is a Beta(3, 2) variable.
    gamma = -torch.log1p(-draw.uniform(5))
    share = gamma[:3].sum(0) / gamma.sum(0).clamp(min=1e-30)
    distance = sky.interpolate(t.distance, chosen.cell, share.clamp(max=1 - 1e-6) * sky.QUANTILES)
    # Radii of a Plummer sphere and of an exponential disc, seen in projection.
    u, v, angle = draw.uniform(3)
    o = chosen.object
    radius = torch.where(o[16] > 0, -torch.log1p(-u) - torch.log1p(-v), (u / (1.02 - u)).sqrt())
    angle = 2 * math.pi * angle
    around = o[:3] + radius * (torch.cos(angle) * o[3:6] + torch.sin(angle) * o[6:9])
    around = around / around.norm(dim=0)
    away = (o[12] + o[13] * draw.normal(1)[0]).clamp(min=0.5 * o[12])
    return torch.where(chosen.field, in_field, around), torch.where(chosen.field, distance, away)


def _velocities(draw: _Draws, t: sky.Tables, chosen: _Chosen, position: Tensor) -> Tensor:
    """Velocities with respect to the Sun (3, n), km/s, Galactic."""
    random = draw.normal(3)
    x, y = position[0] - sky.SUN_RADIUS, position[1]
    R = torch.hypot(x, y).clamp(min=1e-3)
    rotation, *dispersion = t.kinematics.T[:, chosen.population]
    circular = sky.CIRCULAR_SPEED * R / torch.hypot(R, torch.full_like(R, sky.CORE))
    outward, around = random[0] * dispersion[0], rotation * circular + random[1] * dispersion[1]
    U, V, W = sky.SUN_MOTION
    of_field = torch.stack([
        (outward * x + around * y) / R - U,
        (outward * y - around * x) / R - (sky.CIRCULAR_SPEED + V),
        random[2] * dispersion[2] - W,
    ])  # fmt: skip
    return torch.where(chosen.field, of_field, chosen.object[9:12] + chosen.object[14] * random)


def _photometry(draw: _Draws, t: sky.Tables, chosen: _Chosen, distance: Tensor) -> tuple[Tensor, Tensor]:
    """Apparent G and BP - RP, (n,) each; G is never fainter than the limit."""
    limit, at, pick, double, brighter = draw.uniform(5)
    scatter, dust = draw.normal(2)
    extinction = sky.interpolate(t.extinction, chosen.line, sky.distance_index(distance))
    extinction = torch.where(chosen.field, extinction, chosen.object[15]) * torch.exp(sky.EXTINCTION_SCATTER * dust)
    dimming = 5 * torch.log10(distance) + 10 + extinction
    faintest = sky.FAINT_LIMIT - sky.SOFTNESS * limit - torch.where(chosen.field, t.crowded[chosen.line], 0.0)
    M = _magnitudes(t, chosen.population, at, sky.BRIGHT_LIMIT - dimming, faintest - dimming)
    place = sky.magnitude_index(M)
    shares = t.sequence[:, :3].reshape(-1)
    step = chosen.population * (3 * sky.MAGNITUDES) + place.round().long()
    sequence = sum((pick > shares[step + i * sky.MAGNITUDES]).long() for i in range(3))
    line = chosen.population * 4 + sequence
    single = M + torch.where(double < BINARY_SHARE, t.binaries.flatten()[line] * BINARY_BRIGHTENING * brighter, 0.0)
    colour = sky.interpolate(t.colour, line, sky.magnitude_index(single)) + t.scatter.flatten()[line] * scatter
    return M + dimming, colour + sky.REDDENING * extinction


def _magnitudes(t: sky.Tables, population: Tensor, u: Tensor, bright: Tensor, faint: Tensor) -> Tensor:
    """Absolute magnitudes from the luminosity function between two limits, by its inverse."""
    low = sky.interpolate(t.luminosity, population, sky.magnitude_index(bright))
    high = sky.interpolate(t.luminosity, population, sky.magnitude_index(faint))
    wanted = torch.lerp(low, high, u.double()) + population
    stacked = (t.luminosity + torch.arange(len(t.luminosity), device=u.device)[:, None]).flatten()
    right = torch.searchsorted(stacked, wanted).clamp(max=len(stacked) - 1)
    left = (right - 1).clamp(min=0)
    part = ((wanted - stacked[left]) / (stacked[right] - stacked[left]).clamp(min=1e-300)).clamp(0, 1)
    place = (left - population * sky.MAGNITUDES + part).float()
    M = sky.FIRST_MAGNITUDE + sky.MAGNITUDE_STEP * place
    return torch.minimum(torch.maximum(M, bright), faint)


def _logistic(G: Tensor, curve: tuple[float, float, float]) -> Tensor:
    middle, width, floor = curve
    return floor + (1 - floor) * torch.sigmoid((G - middle) / width)


def _solutions(draw: _Draws, G: Tensor, missing: bool) -> tuple[Tensor, Tensor]:
    """Gaia's astrometric_params_solved (n,) int8, and whether BP - RP is missing."""
    kind, colour, both = draw.uniform(3)
    six = _logistic(G, SIX_PARAMETER)
    two = _logistic(G, TWO_PARAMETER) if missing else torch.zeros_like(six)
    is_two = kind < two
    is_six = kind < two + (1 - two) * six
    solution = torch.where(is_two, SOLUTIONS[0], torch.where(is_six, SOLUTIONS[2], SOLUTIONS[1])).to(torch.int8)
    no_colour = (colour < _logistic(G, NO_COLOUR)) | (is_two & (both < NO_COLOUR_WITHOUT_PARALLAX))
    return solution, no_colour & missing


def _errors(draw: _Draws, truth: Tensor, solution: Tensor) -> tuple[list[list[Tensor]], Tensor]:
    """The Cholesky factor of the five astrometric correlations, row by row, and all seven sigmas (7, n)."""
    ra, dec, G = torch.deg2rad(truth[0]), torch.deg2rad(truth[1]), truth[6]
    x, y, z = torch.cos(dec) * torch.cos(ra), torch.cos(dec) * torch.sin(ra), torch.sin(dec)
    y, z = math.cos(OBLIQUITY) * y + math.sin(OBLIQUITY) * z, math.cos(OBLIQUITY) * z - math.sin(OBLIQUITY) * y
    # Most scans 45 degrees from the ecliptic, fewest at it.
    scans = 1.12 - 0.35 * torch.exp(-(((z.abs() - 0.71) / 0.13) ** 2)) - 0.15 * z**2
    floor, a, b = PARALLAX_ERROR
    flux = 10 ** (0.4 * (G - 15))
    base = 1e-3 * (floor**2 + a * flux + b * flux**2).sqrt() * scans * torch.exp(ERROR_SCATTER * draw.normal(1)[0])
    six, two = solution == SOLUTIONS[2], solution == SOLUTIONS[0]
    worse = TWO_PARAMETER_FACTOR * torch.exp(TWO_PARAMETER_SCATTER * draw.normal(1)[0])
    base = base * torch.where(six, SIX_PARAMETER_FACTOR, torch.where(two, worse, 1.0))
    ratios = torch.tensor(ERROR_RATIOS, device=G.device)[:, None] * torch.exp(RATIO_SCATTER * draw.normal(5))
    photometric = [_photometric_error(G, G_or_colour) for G_or_colour in (COLOUR_ERROR, G_ERROR)]
    scatter = torch.exp(ERROR_SCATTER * draw.normal(2))
    sigma = torch.cat([base * ratios, torch.stack(photometric) * scatter])
    sigma[0] /= MAS_PER_DEGREE * torch.cos(dec).clamp(min=1e-6)
    sigma[1] /= MAS_PER_DEGREE
    return _correlations(draw, torch.stack([x, y, z])), sigma


def _photometric_error(G: Tensor, curve: tuple[float, float, float]) -> Tensor:
    floor, at, slope = curve
    return (floor**2 + (at * 10 ** (slope * (G - 17.5))) ** 2).sqrt()


def _correlations(draw: _Draws, direction: Tensor) -> list[list[Tensor]]:
    """Cholesky factors with rows of length one: waves over the sky, as the scanning law makes, and scatter."""
    fixed = torch.Generator().manual_seed(5)
    vectors, phases = 3.0 * torch.randn(10, 3, generator=fixed), 6.3 * torch.rand(10, 1, generator=fixed)
    waves = torch.sin(vectors.to(draw.device) @ direction + phases.to(draw.device))
    below = CORRELATION_WAVES * waves + CORRELATION_SCATTER * draw.normal(10)
    rows = [[*below[i * (i - 1) // 2 : i * (i + 1) // 2]] for i in range(5)]
    lengths = [sum((v**2 for v in row), torch.ones_like(direction[0])).rsqrt() for row in rows]
    return [[v * length for v in row] + [length] for row, length in zip(rows, lengths, strict=True)]


def _multiply(L: list[list[Tensor]], z: Tensor) -> Tensor:
    return torch.stack([sum((v * z[j] for j, v in enumerate(row)), torch.zeros_like(z[0])) for row in L])


def _pack(L: list[list[Tensor]], sigma: Tensor) -> Tensor:
    """Packed lower triangles (28, n) of the seven values' covariances; photometry is independent of the rest."""
    out = sigma.new_zeros(packed_size(7), sigma.shape[1])
    for a in range(5):
        for b in range(a + 1):
            correlation = sum((L[a][j] * L[b][j] for j in range(b + 1)), torch.zeros_like(sigma[0]))
            out[packed_size(a) + b] = correlation * sigma[a] * sigma[b]
    out[packed_size(5) + 5], out[packed_size(6) + 6] = sigma[5] ** 2, sigma[6] ** 2
    return out


def _underestimation(draw: _Draws, fraction: float) -> Tensor:
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


def _empty(n: int, missing: bool, device: torch.device, dtype: torch.dtype) -> Simulated:
    def new(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
        return torch.empty(*shape, n, device=device, dtype=dtype)

    return Simulated(
        batch=Batch(x=new(7), noise=new(packed_size(7)), missing=missing),
        truth=new(7),
        position=new(2, dtype=torch.float64),
        population=new(dtype=torch.int8),
        solution=new(dtype=torch.int8),
        ruwe=new(dtype=torch.float32),
    )
