"""The Galaxy that :mod:`xdeconv.simulate` draws from: its numbers, as data, and the tables they make."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import torch
from torch import Tensor

# ICRS to Galactic (Hipparcos and Tycho catalogues, ESA 1997, volume 1, equation 1.5.11).
TO_GALACTIC = (
    (-0.0548755604, -0.8734370902, -0.4838350155),
    (+0.4941094279, -0.4448296300, +0.7469822445),
    (-0.8676661490, -0.1980763734, +0.4559837762),
)
SUN_RADIUS, SUN_HEIGHT = (
    8.18,
    0.02,
)  # kpc from the Galactic centre (GRAVITY 2019), above the plane (Bennett & Bovy 2019)
SUN_MOTION = (11.1, 12.24, 7.25)  # km/s towards l = 0, l = 90 and b = 90 (Schonrich, Binney & Dehnen 2010)
CIRCULAR_SPEED, CORE = 234.0, 0.6  # km/s, flat beyond a core in kpc (Sgr A*'s proper motion, Reid & Brunthaler 2020)
KMS_PER_MASYR_KPC = 4.740470463

BRIGHT_LIMIT, FAINT_LIMIT, SOFTNESS = 2.5, 21.0, 0.35  # G; a star's own limit lies up to SOFTNESS above the last one
CROWDING = (3.0e5, 1.0)  # stars per square degree above which the limit rises, and by how many mag per factor of ten
REDDENING = 1 / 1.89  # E(BP-RP) / A_G (Wang & Chen 2019)
EXTINCTION_SCATTER = 0.15  # of ln A, from star to star along one line of sight


@dataclass(frozen=True)
class Sequence:
    """A line in the colour-magnitude diagram: knots (M_G, BP-RP, log10 stars per mag and pc^3), scatter in colour."""

    knots: tuple[tuple[float, float, float], ...]
    scatter: float
    binaries: bool = False


# Ridge lines after Pecaut & Mamajek (2013, tables kept up to date) and Gaia Collaboration, Babusiaux et al. (2018);
# numbers after Wielen, Jahreiss & Kruger (1983) and Gaia Collaboration, Smart et al. (2021).
_DWARFS = (
    (5.0, 0.91, -2.48), (6.0, 1.12, -2.47), (7.0, 1.42, -2.50), (8.0, 1.78, -2.35), (9.0, 2.08, -2.15),
    (10.0, 2.40, -1.98), (11.0, 2.70, -1.98), (12.0, 3.00, -2.10), (13.0, 3.40, -2.25), (14.0, 3.85, -2.45),
    (15.0, 4.40, -2.70), (16.0, 4.70, -3.20),
)  # fmt: skip
YOUNG_MAIN = Sequence((
    (-6.5, -0.42, -9.3), (-4.0, -0.38, -7.5), (-2.5, -0.32, -6.3), (-1.0, -0.22, -5.2), (0.0, -0.12, -4.5),
    (1.0, 0.00, -3.85), (2.0, 0.27, -3.3), (3.0, 0.52, -3.0), (4.0, 0.74, -2.7), *_DWARFS), 0.05, True)  # fmt: skip
OLD_MAIN = Sequence((
    (1.5, 0.30, -5.6), (2.0, 0.42, -4.6), (2.5, 0.50, -3.7), (3.0, 0.56, -3.05), (3.5, 0.65, -2.75),
    (4.0, 0.74, -2.6), *_DWARFS), 0.05, True)  # fmt: skip
GIANTS = Sequence((
    (-3.2, 3.40, -7.0), (-3.0, 2.80, -6.0), (-2.5, 2.10, -5.5), (-2.0, 1.85, -5.2), (-1.0, 1.52, -4.8),
    (0.0, 1.33, -4.45), (1.0, 1.21, -4.2), (2.0, 1.14, -3.95), (2.8, 1.07, -3.7), (3.2, 0.98, -3.6),
    (3.5, 0.85, -3.8), (3.7, 0.80, -5.5)), 0.06)  # fmt: skip
CLUMP = Sequence((
    (-0.15, 1.25, -6.0), (0.15, 1.24, -4.2), (0.45, 1.22, -3.5), (0.75, 1.20, -4.2),
    (1.05, 1.18, -6.0)), 0.06)  # fmt: skip
OLD_BRANCH = Sequence((
    (-3.1, 2.60, -7.0), (-2.9, 2.20, -5.9), (-2.0, 1.72, -5.3), (-1.0, 1.45, -4.85), (0.0, 1.28, -4.5),
    (1.0, 1.17, -4.2), (2.0, 1.09, -3.9), (3.0, 1.01, -3.55), (3.4, 0.90, -3.4), (3.7, 0.78, -3.0),
    (4.1, 0.73, -2.6), (4.5, 0.79, -2.52), *_DWARFS), 0.04, True)  # fmt: skip
HORIZONTAL_BRANCH = Sequence((
    (0.1, 0.50, -6.5), (0.4, 0.45, -4.6), (0.6, 0.40, -3.9), (0.8, 0.35, -4.4), (1.6, 0.05, -5.5)), 0.25)  # fmt: skip
WHITE_DWARFS = Sequence((
    (9.5, -0.45, -5.0), (10.0, -0.40, -4.3), (11.0, -0.20, -3.7), (12.0, 0.15, -3.3), (13.0, 0.50, -3.0),
    (14.0, 0.85, -2.8), (15.0, 1.20, -2.65), (15.5, 1.30, -3.5)), 0.06)  # fmt: skip


@dataclass(frozen=True)
class Population:
    """Stars of one kind: sequences with their share, a shift in colour (metallicity), and how they move.

    ``rotation`` is the mean speed over the circular one; ``dispersion`` (km/s) is radial, azimuthal, vertical.
    """

    name: str
    sequences: tuple[tuple[Sequence, float], ...]
    colour: float = 0.0
    rotation: float = 1.0
    dispersion: tuple[float, float, float] = (0.0, 0.0, 0.0)


# Velocity ellipsoids after Bland-Hawthorn & Gerhard (2016), tables 4 to 6, and Robin et al. (2003).
FIELD = (
    Population("young thin disc", ((YOUNG_MAIN, 0.15), (GIANTS, 0.06), (CLUMP, 0.08), (WHITE_DWARFS, 0.05)),
               0.0, 0.99, (22.0, 15.0, 10.0)),
    Population("old thin disc", ((OLD_MAIN, 0.85), (GIANTS, 0.9), (CLUMP, 0.9), (WHITE_DWARFS, 0.9)),
               0.0, 0.94, (38.0, 26.0, 20.0)),
    Population("thick disc", ((OLD_BRANCH, 1.0), (CLUMP, 0.7), (WHITE_DWARFS, 1.5)), -0.05, 0.80, (63.0, 45.0, 40.0)),
    Population("bulge", ((OLD_BRANCH, 1.0), (CLUMP, 1.0), (WHITE_DWARFS, 1.5)), 0.08, 0.45, (105.0, 95.0, 85.0)),
    Population("halo", ((OLD_BRANCH, 1.0), (HORIZONTAL_BRANCH, 1.0), (WHITE_DWARFS, 2.0)), -0.14, 0.05,
               (145.0, 110.0, 95.0)),
)  # fmt: skip
CLOUD = Population("clouds", ((YOUNG_MAIN, 0.7), (GIANTS, 1.3), (CLUMP, 1.3), (HORIZONTAL_BRANCH, 0.3)), -0.10)
OPEN = Population("open cluster", ((YOUNG_MAIN, 0.9), (GIANTS, 0.15), (CLUMP, 0.25), (WHITE_DWARFS, 0.2)), 0.0)
GLOBULAR = Population("globular cluster", ((OLD_BRANCH, 1.0), (HORIZONTAL_BRANCH, 0.9), (WHITE_DWARFS, 1.0)), -0.12)

# Space densities: relative to the knots' numbers at the Sun; lengths in kpc (Bland-Hawthorn & Gerhard 2016).
YOUNG_LENGTH, YOUNG_HEIGHT = 2.8, 0.09
OLD_LENGTH, OLD_HEIGHT = 2.6, 0.30
THICK_SHARE, THICK_LENGTH, THICK_HEIGHT = 0.06, 2.0, 0.90
BULGE_SHARE, BULGE_AXES, BAR_ANGLE = 18.0, (1.50, 0.62, 0.42), 27.0  # the bar's near end at l > 0 (Wegg & Gerhard 2013)
HALO_SHARE, HALO_SLOPE, HALO_FLATTENING, HALO_CORE = 0.0025, 2.9, 0.7, 1.0
DISC_HOLE = 1.2  # the discs end at the bar

# Dust: A_G per kpc at the Sun, in a disc (Drimmel & Spergel 2001), broken up by a random texture of power-law spectrum.
DUST_DENSITY, DUST_LENGTH, DUST_HEIGHT = 0.75, 3.5, 0.11
TEXTURE_SLOPE, TEXTURE_STRENGTH, TEXTURE_SEED = 1.6, 0.75, 7
# Nearby clouds (Zucker et al. 2020): l, b, radius in l and in b (deg), distance (kpc), A_G.
DUST_CLOUDS = (
    (28.0, 4.0, 14.0, 3.5, 0.25, 2.2), (45.0, 0.5, 14.0, 2.5, 0.45, 1.6), (76.0, 1.0, 9.0, 3.0, 0.80, 1.6),
    (355.0, 16.0, 6.0, 4.5, 0.14, 2.4), (2.0, 6.0, 7.0, 2.2, 0.15, 2.2), (338.0, 13.0, 5.0, 4.0, 0.16, 1.4),
    (171.0, -15.0, 8.0, 4.5, 0.14, 1.8), (159.0, -20.0, 4.0, 3.0, 0.29, 1.6), (210.0, -18.0, 5.0, 5.0, 0.40, 1.6),
    (303.0, -0.5, 3.5, 2.5, 0.19, 1.8), (300.0, -16.0, 5.0, 3.0, 0.19, 1.3), (264.0, 1.0, 8.0, 3.0, 0.70, 1.5),
    (110.0, 14.0, 8.0, 4.0, 0.35, 1.0), (225.0, -2.0, 5.0, 3.0, 1.10, 1.0),
)  # fmt: skip


@dataclass(frozen=True)
class Object:
    """A galaxy or cluster: centre and proper motion (ICRS), size on the sky, and the stars Gaia sees of it.

    Radii are in degrees along and across ``angle`` (degrees east of north) and scale an exponential disc
    (``disc``) or a Plummer sphere; distance and depth in kpc; velocity and dispersion in km/s.
    """

    name: str
    population: Population
    stars: float
    ra: float
    dec: float
    distance: float
    pmra: float
    pmdec: float
    velocity: float
    radius: float
    extinction: float
    dispersion: float
    across: float = 1.0
    angle: float = 0.0
    depth: float = 0.0
    disc: bool = False


# Clouds: Gaia Collaboration, Luri et al. (2021); globulars: Vasiliev & Baumgardt (2021); open: Cantat-Gaudin (2020).
OBJECTS = (
    Object("LMC", CLOUD, 9.0e6, 80.9, -69.3, 49.6, 1.86, 0.33, 262.0, 1.75, 0.25, 28.0, 0.85, 10.0, 1.0, True),
    Object("LMC bar", CLOUD, 3.0e6, 80.6, -69.7, 49.6, 1.86, 0.33, 262.0, 0.85, 0.35, 25.0, 0.30, 115.0, 0.5, True),
    Object("SMC", CLOUD, 1.9e6, 13.1, -72.9, 62.4, 0.69, -1.23, 146.0, 0.62, 0.15, 28.0, 0.60, 50.0, 4.0, True),
    Object("Sagittarius", GLOBULAR, 6.0e5, 283.8, -30.5, 26.5, -2.69, -1.36, 142.0, 4.0, 0.40, 12.0, 0.36, 100.0, 1.0),
    Object("47 Tuc", GLOBULAR, 1.5e5, 6.024, -72.081, 4.52, 5.25, -2.55, -17.5, 0.09, 0.10, 8.0),
    Object("Omega Cen", GLOBULAR, 2.5e5, 201.697, -47.480, 5.43, -3.25, -6.75, 232.8, 0.13, 0.30, 12.0),
    Object("NGC 6752", GLOBULAR, 6.0e4, 287.717, -59.985, 4.13, -3.16, -4.03, -26.3, 0.07, 0.10, 6.0),
    Object("NGC 6397", GLOBULAR, 4.0e4, 265.175, -53.674, 2.48, 3.26, -17.66, 18.5, 0.08, 0.45, 4.0),
    Object("M 22", GLOBULAR, 8.0e4, 279.100, -23.905, 3.30, 9.85, -5.62, -148.7, 0.07, 0.80, 7.0),
    Object("M 4", GLOBULAR, 4.0e4, 245.897, -26.526, 1.85, -12.51, -19.02, 71.2, 0.10, 0.90, 4.0),
    Object("M 13", GLOBULAR, 4.0e4, 250.422, 36.460, 7.42, -3.15, -2.57, -244.9, 0.05, 0.05, 6.0),
    Object("Hyades", OPEN, 8.0e2, 66.75, 15.87, 0.0475, 104.0, -28.0, 39.4, 5.0, 0.0, 0.6, depth=0.004),
    Object("Pleiades", OPEN, 1.5e3, 56.75, 24.12, 0.1357, 19.99, -45.55, 5.6, 1.2, 0.10, 0.8, depth=0.003),
    Object("Praesepe", OPEN, 1.3e3, 130.05, 19.62, 0.1860, -36.05, -12.92, 35.0, 0.9, 0.05, 0.8, depth=0.004),
    Object("NGC 2516", OPEN, 3.0e3, 119.53, -60.80, 0.4100, -4.75, 11.22, 24.0, 0.5, 0.30, 1.0, depth=0.005),
    Object("M 67", OPEN, 1.8e3, 132.85, 11.81, 0.8600, -10.99, -2.96, 34.0, 0.2, 0.10, 0.8, depth=0.004),
    Object("h Persei", OPEN, 3.0e3, 34.74, 57.13, 2.3000, -0.66, -1.14, -44.0, 0.15, 1.40, 2.0, depth=0.005),
)
POPULATIONS = (*FIELD, CLOUD, OPEN, GLOBULAR)
NAMES = tuple(p.name for p in FIELD) + tuple(o.name for o in OBJECTS)

LONGITUDES, LATITUDES, DISTANCES, QUANTILES = 360, 160, 40, 24
NEAREST, FARTHEST = 0.004, 80.0  # kpc
LATITUDE_STRETCH = 2.5  # cells of latitude are half a degree at the plane and three at the poles
MAGNITUDE_STEP, FIRST_MAGNITUDE, MAGNITUDES = 0.1, -7.0, 241


@dataclass(frozen=True)
class Tables:
    """What a draw looks up; f is a field population, s a line of sight, p a population, q a quantile, m a magnitude.

    cells (f s + objects,) cumulative probability; distance (f s, q) kpc; extinction (s, DISTANCES) A_G at the edges;
    crowded (s,) mag; luminosity (p, m) cumulative share; sequence (p, 4, m) cumulative share; colour (p, 4, m);
    scatter (p, 4); binaries (p, 4); kinematics (p, 4); objects (objects, 18): see :func:`_objects`.
    """

    cells: Tensor
    distance: Tensor
    extinction: Tensor
    crowded: Tensor
    luminosity: Tensor
    sequence: Tensor
    colour: Tensor
    scatter: Tensor
    binaries: Tensor
    kinematics: Tensor
    objects: Tensor
    stars: float


@lru_cache(maxsize=8)
def tables(device: str = "cpu") -> Tables:
    """The tables on a device; they are built once, on the CPU, so that all devices draw from the same sky.

    >>> 1e9 < tables().stars < 3e9  # Gaia has 1.8e9
    True
    """
    if device != "cpu":
        built = tables()
        moved = {f.name: getattr(built, f.name).to(device) for f in fields(Tables) if f.name != "stars"}
        return replace(built, **moved)
    counts, luminosity, sequence, colour = _luminosities()
    extinction = _extinction()
    first = _field(counts[: len(FIELD)], extinction, torch.zeros(LONGITUDES * LATITUDES))
    per_degree = first.sum((0, 2)).double() / solid_angle() / (180 / math.pi) ** 2
    crowded = CROWDING[1] * torch.log10((per_degree / CROWDING[0]).clamp(min=1.0)).float()
    density = _field(counts[: len(FIELD)], extinction, crowded)
    numbers = torch.cat(
        [density.sum(2).flatten().double(), torch.tensor([o.stars for o in OBJECTS], dtype=torch.float64)]
    )
    moves = [[p.rotation, *p.dispersion] for p in POPULATIONS]
    padded = [[*p.sequences, *[p.sequences[-1]] * (4 - len(p.sequences))] for p in POPULATIONS]
    return Tables(
        cells=numbers.cumsum(0) / numbers.sum(),
        distance=_quantiles(density.flatten(0, 1)),
        extinction=extinction,
        crowded=crowded,
        luminosity=luminosity,
        sequence=sequence,
        colour=colour,
        scatter=torch.tensor([[s.scatter for s, _ in row] for row in padded]),
        binaries=torch.tensor([[float(s.binaries) for s, _ in row] for row in padded]),
        kinematics=torch.tensor(moves),
        objects=torch.stack([_object(o) for o in OBJECTS]),
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
    return x.float()[:, None] * d - SUN_RADIUS, y.float()[:, None] * d, z.float()[:, None] * d + SUN_HEIGHT


def _densities() -> list[Tensor]:
    """Space density of each field population over its density at the Sun, (s, DISTANCES - 1)."""
    x, y, z = _positions()
    R, height = torch.hypot(x, y), z.abs()
    hole = 1 - torch.exp(-((R / DISC_HOLE) ** 2))
    bar = math.radians(BAR_ANGLE)
    along, across = x * math.cos(bar) - y * math.sin(bar), x * math.sin(bar) + y * math.cos(bar)
    a, b, c = BULGE_AXES
    boxy = ((along / a) ** 4 + 2 * (along * across / (a * b)) ** 2 + (across / b) ** 4 + (z / c) ** 4).sqrt()
    radius = (R**2 + (z / HALO_FLATTENING) ** 2 + HALO_CORE**2).sqrt()
    return [
        hole * torch.exp(-(R - SUN_RADIUS) / YOUNG_LENGTH - height / YOUNG_HEIGHT),
        hole * torch.exp(-(R - SUN_RADIUS) / OLD_LENGTH - height / OLD_HEIGHT),
        THICK_SHARE * torch.exp(-(R - SUN_RADIUS) / THICK_LENGTH - height / THICK_HEIGHT),
        BULGE_SHARE * torch.exp(-0.5 * boxy),
        HALO_SHARE * (radius / SUN_RADIUS) ** -HALO_SLOPE,
    ]


def _extinction() -> Tensor:
    """A_G at the edges of the distance cells, (s, DISTANCES)."""
    x, y, z = _positions()
    steps = _edges().diff().float()
    R = torch.hypot(x, y)
    disc = DUST_DENSITY * torch.exp(-(R.clamp(min=3.0) - SUN_RADIUS) / DUST_LENGTH - z.abs() / DUST_HEIGHT) * steps
    column = torch.cat([torch.zeros(len(x), 1), disc.cumsum(1)], dim=1)
    l, b = (torch.rad2deg(t).float() for t in _lines_of_sight())
    logs = _edges().log().float()
    for l0, b0, dl, db, distance, depth in DUST_CLOUDS:
        away = torch.remainder(l - l0 + 180, 360) - 180
        profile = depth * torch.exp(-0.5 * (away / dl) ** 2 - 0.5 * ((b - b0) / db) ** 2)
        column += profile[:, None] * torch.sigmoid((logs - math.log(distance)) / 0.1)
    return column * _texture()[:, None]


def _texture() -> Tensor:
    """A random factor of mean one for each line of sight, (s,): clouds and filaments of all sizes."""
    generator = torch.Generator().manual_seed(TEXTURE_SEED)
    white = torch.fft.rfft2(torch.randn(LATITUDES, LONGITUDES, generator=generator))
    cell = 90 * LATITUDE_STRETCH / math.sinh(LATITUDE_STRETCH) * 2 / LATITUDES
    k_b, k_l = torch.fft.fftfreq(LATITUDES, cell), torch.fft.rfftfreq(LONGITUDES, 360 / LONGITUDES)
    k = torch.hypot(k_b[:, None], k_l[None, :])
    field = torch.fft.irfft2(white * (k + 0.01) ** -TEXTURE_SLOPE * (k > 0), s=(LATITUDES, LONGITUDES))
    factor = torch.exp(TEXTURE_STRENGTH * field / field.std())
    return (factor / factor.mean()).T.flatten()


def _luminosities() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Per population: stars per pc^3 brighter than M (p, m), the same as a share, sequences' shares, and colours."""
    grid = FIRST_MAGNITUDE + MAGNITUDE_STEP * torch.arange(MAGNITUDES, dtype=torch.float64)
    numbers = torch.zeros(len(POPULATIONS), 4, MAGNITUDES, dtype=torch.float64)
    colours = torch.zeros(len(POPULATIONS), 4, MAGNITUDES, dtype=torch.float64)
    for i, population in enumerate(POPULATIONS):
        for j, (sequence, share) in enumerate(population.sequences):
            M, colour, log_number = torch.tensor(sequence.knots, dtype=torch.float64).T.contiguous()
            inside = (grid >= M[0]) & (grid <= M[-1])
            numbers[i, j] = torch.where(inside, share * 10 ** _at_knots(grid, M, log_number), 0.0)
            colours[i, j] = _at_knots(grid, M, colour) + population.colour
    total = numbers.sum(1)
    count = torch.cat([torch.zeros(len(total), 1), (0.5 * (total[:, 1:] + total[:, :-1])).cumsum(1)], dim=1)
    count = count * MAGNITUDE_STEP + 1e-14 * torch.arange(1, MAGNITUDES + 1)
    shares = numbers.cumsum(1) / total.clamp(min=1e-30)[:, None]
    return count, count / count[:, -1:], shares.float(), colours.float()


def _at_knots(at: Tensor, knots: Tensor, values: Tensor) -> Tensor:
    """Values between knots, and the end values beyond them."""
    at = at.clamp(knots[0], knots[-1])
    right = torch.searchsorted(knots, at).clamp(1, len(knots) - 1)
    return torch.lerp(values[right - 1], values[right], (at - knots[right - 1]) / (knots[right] - knots[right - 1]))


def _field(counts: Tensor, extinction: Tensor, crowded: Tensor) -> Tensor:
    """Stars that Gaia sees in each cell, (f, s, DISTANCES - 1) float32; ``counts`` (f, m) are stars brighter than M."""
    edges = _edges()
    modulus = (2.5 * torch.log10(edges[1:] * edges[:-1]) + 10).float()
    limit = FAINT_LIMIT - 0.5 * SOFTNESS - crowded[:, None] - modulus - 0.5 * (extinction[:, 1:] + extinction[:, :-1])
    place = magnitude_index(limit)
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


def _object(o: Object) -> Tensor:
    """Centre, axes along and across the angle (unit vectors), velocity (km/s) (12 numbers, Galactic), and six more:
    distance, depth, velocity dispersion, extinction, whether a disc, place in POPULATIONS."""
    ra, dec, angle = (math.radians(v) for v in (o.ra, o.dec, o.angle))
    centre = torch.tensor([math.cos(dec) * math.cos(ra), math.cos(dec) * math.sin(ra), math.sin(dec)])
    east = torch.tensor([-math.sin(ra), math.cos(ra), 0.0])
    north = torch.tensor([-math.sin(dec) * math.cos(ra), -math.sin(dec) * math.sin(ra), math.cos(dec)])
    along = math.sin(angle) * east + math.cos(angle) * north
    across = math.cos(angle) * east - math.sin(angle) * north
    velocity = KMS_PER_MASYR_KPC * o.distance * (o.pmra * east + o.pmdec * north) + o.velocity * centre
    size = math.tan(math.radians(o.radius))
    vectors = torch.stack([centre, size * along, size * o.across * across, velocity]) @ torch.tensor(TO_GALACTIC).T
    rest = [o.distance, o.depth, o.dispersion, o.extinction, float(o.disc), float(POPULATIONS.index(o.population))]
    return torch.cat([vectors.flatten(), torch.tensor(rest)])
