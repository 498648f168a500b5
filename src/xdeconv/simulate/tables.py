"""Tables of the sky: where Gaia sees how many stars of which kind, at what distance, magnitude and colour."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import torch
from torch import Tensor

from ..rows.galactic import ICRS_TO_GALACTIC, KM_S
from . import sky
from .sky import FIELD, OBJECTS, POPULATIONS

LONGITUDES, LATITUDES, DISTANCES, QUANTILES = 360, 160, 40, 24
NEAREST, FARTHEST = 0.004, 80.0  # kpc
LATITUDE_STRETCH = 2.5  # cells of latitude are half a degree at the plane and three at the poles
MAGNITUDE_STEP, FIRST_MAGNITUDE, MAGNITUDES = 0.1, -7.0, 241
SHARES, LEAST_LOG_SHARE = 4096, -30.0  # places of a luminosity function's inverse, even in the logarithm


@dataclass(frozen=True)
class Objects:
    """Galaxies and clusters: four Galactic vectors (3, o), centre, axes on the sky and velocity, and numbers (o,)."""

    centre: Tensor
    along: Tensor
    across: Tensor
    velocity: Tensor
    distance: Tensor
    depth: Tensor
    dispersion: Tensor
    extinction: Tensor
    disc: Tensor
    population: Tensor

    def map(self, f: Callable[[Tensor], Tensor]) -> Objects:
        """The same function of every tensor."""
        return Objects(**{g.name: f(getattr(self, g.name)) for g in fields(self)})


@dataclass(frozen=True)
class Tables:
    """What a draw looks up; f is a field population, s a line of sight, p a population, q a quantile, m a magnitude.

    cells (f s + objects,) cumulative probability; distance (f s, q) kpc; extinction (s, DISTANCES) A_G at the edges;
    crowded (s,) mag; luminosity (p, m) log cumulative share; magnitude (p, SHARES) its inverse;
    sequence (p, 4, m) cumulative share; colour (p, 4, m); scatter (p, 4); binaries (p, 4) greatest brightening;
    kinematics (4, p); stars is how many Gaia would see.
    """

    cells: Tensor
    distance: Tensor
    extinction: Tensor
    crowded: Tensor
    luminosity: Tensor
    magnitude: Tensor
    sequence: Tensor
    colour: Tensor
    scatter: Tensor
    binaries: Tensor
    kinematics: Tensor
    objects: Objects
    stars: float


@lru_cache(maxsize=8)
def tables(device: str = "cpu") -> Tables:
    """The tables on a device; they are built once, on the CPU, so that all devices draw from the same sky.

    >>> 1e9 < tables().stars < 3e9  # Gaia has 1.8e9
    True
    """
    if device != "cpu":
        built = tables()
        tensors = {f.name: getattr(built, f.name) for f in fields(Tables) if f.name not in ("objects", "stars")}
        moved = {name: t.to(device) for name, t in tensors.items()}
        return replace(built, **moved, objects=built.objects.map(lambda t: t.to(device)))
    counts, luminosity, sequence, colour = _luminosities()
    extinction = _extinction()
    first = _field(counts[: len(FIELD)], extinction, torch.zeros(LONGITUDES * LATITUDES))
    per_degree = first.sum((0, 2)).double() / solid_angle() / (180 / math.pi) ** 2
    crowded = sky.CROWDING[1] * torch.log10((per_degree / sky.CROWDING[0]).clamp(min=1.0)).float()
    density = _field(counts[: len(FIELD)], extinction, crowded)
    of_objects = torch.tensor([o.stars for o in OBJECTS], dtype=torch.float64)
    numbers = torch.cat([density.sum(2).flatten().double(), of_objects])
    return Tables(
        cells=numbers.cumsum(0) / numbers.sum(),
        distance=_quantiles(density.flatten(0, 1)),
        extinction=extinction,
        crowded=crowded,
        luminosity=luminosity.float(),
        magnitude=_inverse(luminosity),
        sequence=sequence,
        colour=colour,
        scatter=torch.tensor([[s.scatter for s, _ in _four(p)] for p in POPULATIONS]),
        binaries=torch.tensor([[sky.BINARY_BRIGHTENING * s.binaries for s, _ in _four(p)] for p in POPULATIONS]),
        kinematics=torch.tensor([[p.rotation, *p.dispersion] for p in POPULATIONS]).T.contiguous(),
        objects=_objects(),
        stars=float(numbers.sum()),
    )


def latitude(index: Tensor) -> Tensor:
    """Latitude (rad) at a place in 0 .. LATITUDES."""
    t = index * (2 * LATITUDE_STRETCH / LATITUDES) - LATITUDE_STRETCH
    return torch.sinh(t) * (0.5 * math.pi / math.sinh(LATITUDE_STRETCH))


def distance_index(distance: Tensor) -> Tensor:
    """Place of a distance (kpc) among the edges of the distance cells, 0 .. DISTANCES - 1."""
    per_edge = math.log(FARTHEST / NEAREST) / (DISTANCES - 1)
    return (torch.log(distance / NEAREST) / per_edge).clamp(0.0, DISTANCES - 1.001)


def magnitude_index(magnitude: Tensor) -> Tensor:
    """Place of an absolute magnitude in the tables, 0 .. MAGNITUDES - 1."""
    return ((magnitude - FIRST_MAGNITUDE) / MAGNITUDE_STEP).clamp(0.0, MAGNITUDES - 1.001)


def share_index(share: Tensor) -> Tensor:
    """Place of a log share in the inverse luminosity functions, 0 .. SHARES - 1."""
    return ((share - LEAST_LOG_SHARE) * ((SHARES - 1) / -LEAST_LOG_SHARE)).clamp(0.0, SHARES - 1.001)


def interpolate(table: Tensor, line: Tensor, place: Tensor) -> Tensor:
    """Values of the lines of a table (..., m) at fractional places, between neighbours."""
    m = table.shape[-1]
    low = place.long()
    at = line * m + low
    flat = table.reshape(-1)
    return torch.lerp(flat[at], flat[at + 1], (place - low).to(table.dtype))


def solid_angle() -> Tensor:
    """Steradians of the lines of sight (s,), longitude by longitude."""
    sine = torch.sin(latitude(torch.arange(LATITUDES + 1, dtype=torch.float64)))
    return (sine.diff() * (2 * math.pi / LONGITUDES)).repeat(LONGITUDES)


def _edges() -> Tensor:
    steps = torch.linspace(0, 1, DISTANCES, dtype=torch.float64)
    return NEAREST * (FARTHEST / NEAREST) ** steps


def _lines_of_sight() -> tuple[Tensor, Tensor]:
    """Longitude and latitude (rad) of the cells' middles, each (s,)."""
    l = (torch.arange(LONGITUDES, dtype=torch.float64) + 0.5) * (2 * math.pi / LONGITUDES)
    b = latitude(torch.arange(LATITUDES, dtype=torch.float64) + 0.5)
    l, b = torch.meshgrid(l, b, indexing="ij")
    return l.flatten(), b.flatten()


def _positions() -> tuple[Tensor, Tensor, Tensor]:
    """Galactocentric x, y (axes of the Sun's l = 0 and l = 90) and z of the cells' middles, (s, DISTANCES - 1) kpc."""
    l, b = _lines_of_sight()
    edges = _edges()
    d = (edges[1:] * edges[:-1]).sqrt().float()
    x, y, z = torch.cos(b) * torch.cos(l), torch.cos(b) * torch.sin(l), torch.sin(b)
    return x.float()[:, None] * d - sky.SUN_RADIUS, y.float()[:, None] * d, z.float()[:, None] * d + sky.SUN_HEIGHT


def _densities() -> list[Tensor]:
    """Space density of each field population over its density at the Sun, (s, DISTANCES - 1)."""
    x, y, z = _positions()
    R, height = torch.hypot(x, y), z.abs()
    hole = 1 - torch.exp(-((R / sky.DISC_HOLE) ** 2))
    bar = math.radians(sky.BAR_ANGLE)
    along, across = x * math.cos(bar) - y * math.sin(bar), x * math.sin(bar) + y * math.cos(bar)
    a, b, c = sky.BULGE_AXES
    boxy = ((along / a) ** 4 + 2 * (along * across / (a * b)) ** 2 + (across / b) ** 4 + (z / c) ** 4).sqrt()
    radius = (R**2 + (z / sky.HALO_FLATTENING) ** 2 + sky.HALO_CORE**2).sqrt()
    return [
        hole * torch.exp(-(R - sky.SUN_RADIUS) / sky.YOUNG_LENGTH - height / sky.YOUNG_HEIGHT),
        hole * torch.exp(-(R - sky.SUN_RADIUS) / sky.OLD_LENGTH - height / sky.OLD_HEIGHT),
        sky.THICK_SHARE * torch.exp(-(R - sky.SUN_RADIUS) / sky.THICK_LENGTH - height / sky.THICK_HEIGHT),
        sky.BULGE_SHARE * torch.exp(-0.5 * boxy),
        sky.HALO_SHARE * (radius / sky.SUN_RADIUS) ** -sky.HALO_SLOPE,
    ]


def _extinction() -> Tensor:
    """A_G at the edges of the distance cells, (s, DISTANCES)."""
    x, y, z = _positions()
    steps = _edges().diff().float()
    R = torch.hypot(x, y)
    disc = torch.exp((sky.SUN_RADIUS - R.clamp(min=3.0)) / sky.DUST_LENGTH - z.abs() / sky.DUST_HEIGHT) * steps
    column = sky.DUST_DENSITY * torch.cat([torch.zeros(len(x), 1), disc.cumsum(1)], dim=1)
    l, b = (torch.rad2deg(t).float() for t in _lines_of_sight())
    logs = _edges().log().float()
    for l0, b0, dl, db, distance, depth in sky.DUST_CLOUDS:
        away = torch.remainder(l - l0 + 180, 360) - 180
        profile = depth * torch.exp(-0.5 * (away / dl) ** 2 - 0.5 * ((b - b0) / db) ** 2)
        column += profile[:, None] * torch.sigmoid((logs - math.log(distance)) / 0.1)
    return column * _texture()[:, None]


def _texture() -> Tensor:
    """A random factor of mean one for each line of sight, (s,): clouds and filaments of all sizes."""
    generator = torch.Generator().manual_seed(sky.TEXTURE_SEED)
    white = torch.fft.rfft2(torch.randn(LATITUDES, LONGITUDES, generator=generator))
    cell = 90 * LATITUDE_STRETCH / math.sinh(LATITUDE_STRETCH) * 2 / LATITUDES
    k_b, k_l = torch.fft.fftfreq(LATITUDES, cell), torch.fft.rfftfreq(LONGITUDES, 360 / LONGITUDES)
    k = torch.hypot(k_b[:, None], k_l[None, :])
    field = torch.fft.irfft2(white * (k + 0.01) ** -sky.TEXTURE_SLOPE * (k > 0), s=(LATITUDES, LONGITUDES))
    factor = torch.exp(sky.TEXTURE_STRENGTH * field / field.std())
    return (factor / factor.mean()).T.flatten()


def _four(population: sky.Population) -> list[tuple[sky.Sequence, float]]:
    """The population's sequences, made four by empty ones."""
    last = population.sequences[-1][0]
    return [*population.sequences, *[(last, 0.0)] * (4 - len(population.sequences))]


def _luminosities() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Stars per pc^3 brighter than M (p, m), the same as a log share, sequences' shares and colours (p, 4, m)."""
    grid = FIRST_MAGNITUDE + MAGNITUDE_STEP * torch.arange(MAGNITUDES, dtype=torch.float64)
    numbers = torch.zeros(len(POPULATIONS), 4, MAGNITUDES, dtype=torch.float64)
    colours = torch.zeros(len(POPULATIONS), 4, MAGNITUDES, dtype=torch.float64)
    for i, population in enumerate(POPULATIONS):
        for j, (sequence, share) in enumerate(_four(population)):
            M, colour, log_number = torch.tensor(sequence.knots, dtype=torch.float64).T.contiguous()
            inside = (grid >= M[0]) & (grid <= M[-1])
            numbers[i, j] = torch.where(inside, share * 10 ** _at_knots(grid, M, log_number), 0.0)
            colours[i, j] = _at_knots(grid, M, colour) + population.colour
    total = numbers.sum(1)
    count = torch.cat([torch.zeros(len(total), 1), (0.5 * (total[:, 1:] + total[:, :-1])).cumsum(1)], dim=1)
    count = count * MAGNITUDE_STEP + 1e-14 * torch.arange(1, MAGNITUDES + 1)
    shares = numbers.cumsum(1) / total.clamp(min=1e-30)[:, None]
    return count, torch.log(count / count[:, -1:]), shares.float(), colours.float()


def _inverse(luminosity: Tensor) -> Tensor:
    """Absolute magnitudes at even steps of the log share, (p, SHARES) float32."""
    grid = FIRST_MAGNITUDE + MAGNITUDE_STEP * torch.arange(MAGNITUDES, dtype=torch.float64)
    at = torch.linspace(LEAST_LOG_SHARE, 0.0, SHARES, dtype=torch.float64)
    return torch.stack([_at_knots(at, line, grid) for line in luminosity]).float()


def _at_knots(at: Tensor, knots: Tensor, values: Tensor) -> Tensor:
    """Values between knots, and the end values beyond them."""
    at = at.clamp(knots[0], knots[-1])
    right = torch.searchsorted(knots, at).clamp(1, len(knots) - 1)
    return torch.lerp(values[right - 1], values[right], (at - knots[right - 1]) / (knots[right] - knots[right - 1]))


def _field(counts: Tensor, extinction: Tensor, crowded: Tensor) -> Tensor:
    """Stars that Gaia sees in each cell, (f, s, DISTANCES - 1) float32; ``counts`` (f, m) are stars brighter than M."""
    edges = _edges()
    modulus = (2.5 * torch.log10(edges[1:] * edges[:-1]) + 10).float()
    dimming = modulus + 0.5 * (extinction[:, 1:] + extinction[:, :-1])
    place = magnitude_index(sky.FAINT_LIMIT - 0.5 * sky.SOFTNESS - crowded[:, None] - dimming)
    low = place.int()
    part = place - low
    volume = (solid_angle()[:, None] * (edges**3).diff() / 3 * 1e9).float()
    seen = [torch.lerp(c[low], c[low + 1], part) for c in counts.float()]
    return torch.stack([rho * n * volume for rho, n in zip(_densities(), seen, strict=True)])


def _quantiles(density: Tensor) -> Tensor:
    """Distances (kpc) at the quantiles 4 t^3 - 3 t^4 of every cell, (f s, QUANTILES + 1) float32.

    That spacing follows both ends: volume grows as the third power nearby, and the far tail is thin.
    """
    t = torch.linspace(0, 1, QUANTILES + 1)
    wanted = 4 * t**3 - 3 * t**4
    edges = _edges().float()
    total = density.sum(1, keepdim=True).clamp(min=1e-30)
    cumulative = torch.cat([torch.zeros(len(density), 1), (density / total).cumsum(1)], dim=1)
    wanted = wanted.expand(len(density), -1).contiguous()
    right = torch.searchsorted(cumulative, wanted).clamp(1, DISTANCES - 1)
    low, high = cumulative.gather(1, right - 1), cumulative.gather(1, right)
    part = ((wanted - low) / (high - low).clamp(min=1e-12)).clamp(0, 1)
    near, far = edges[right - 1], edges[right]
    return (near**3 + part * (far**3 - near**3)) ** (1 / 3)


def _objects() -> Objects:
    """The galaxies and clusters as tensors; axes are as long as the radii (rad)."""
    ra, dec, angle, radius = (
        torch.deg2rad(torch.tensor(v)) for v in zip(*[(o.ra, o.dec, o.angle, o.radius) for o in OBJECTS], strict=True)
    )
    numbers = ("distance", "depth", "dispersion", "extinction", "disc", "pmra", "pmdec", "velocity", "across")
    n = {name: torch.tensor([float(getattr(o, name)) for o in OBJECTS]) for name in numbers}
    zero, to_galactic = torch.zeros_like(ra), torch.tensor(ICRS_TO_GALACTIC)
    centre = torch.stack([torch.cos(dec) * torch.cos(ra), torch.cos(dec) * torch.sin(ra), torch.sin(dec)])
    east = torch.stack([-torch.sin(ra), torch.cos(ra), zero])
    north = torch.linalg.cross(centre, east, dim=0)
    transverse = KM_S * n["distance"] * (n["pmra"] * east + n["pmdec"] * north)
    return Objects(
        centre=to_galactic @ centre,
        along=to_galactic @ (radius * (torch.sin(angle) * east + torch.cos(angle) * north)),
        across=to_galactic @ (radius * n["across"] * (torch.cos(angle) * east - torch.sin(angle) * north)),
        velocity=to_galactic @ (transverse + n["velocity"] * centre),
        distance=n["distance"],
        depth=n["depth"],
        dispersion=n["dispersion"],
        extinction=n["extinction"],
        disc=n["disc"],
        population=torch.tensor([POPULATIONS.index(o.population) for o in OBJECTS]),
    )
