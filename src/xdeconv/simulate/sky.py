"""The Galaxy that :mod:`xdeconv.simulate` draws from, as data: rounded numbers of the sources named beside them."""

from __future__ import annotations

from dataclasses import dataclass

# kpc from the Galactic centre (GRAVITY 2019), and above the plane (Bennett & Bovy 2019)
SUN_RADIUS, SUN_HEIGHT = 8.18, 0.02
SUN_MOTION = (11.1, 12.24, 7.25)  # km/s towards l = 0, l = 90 and b = 90 (Schonrich, Binney & Dehnen 2010)
CIRCULAR_SPEED, CORE = 234.0, 0.6  # km/s, flat beyond a core in kpc (Sgr A*'s proper motion, Reid & Brunthaler 2020)

BRIGHT_LIMIT, FAINT_LIMIT, SOFTNESS = 2.5, 21.0, 0.30  # G; a star's own limit lies up to SOFTNESS above the last one
CROWDING = (4.0e5, 0.6)  # stars per square degree above which the limit rises, and by how many mag per factor of ten
REDDENING, SATURATION = 1 / 1.89, 30.0  # E(BP-RP) / A_G (Wang & Chen 2019), less by half at A_G of 30
BINARY_SHARE, BINARY_BRIGHTENING = 0.35, 0.75  # of dwarfs, and by at most so many mag at a single star's colour
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
    (1.0, 0.00, -3.85), (2.0, 0.27, -3.45), (3.0, 0.52, -3.4), (4.0, 0.74, -3.4),
    *((M, colour, number - 0.9) for M, colour, number in _DWARFS)), 0.05, True)  # fmt: skip
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
    Population("young thin disc", ((YOUNG_MAIN, 0.8), (GIANTS, 0.06), (CLUMP, 0.08), (WHITE_DWARFS, 0.05)),
               0.0, 0.99, (22.0, 15.0, 10.0)),
    Population("old thin disc", ((OLD_MAIN, 0.85), (GIANTS, 0.9), (CLUMP, 0.9), (WHITE_DWARFS, 0.9)),
               0.0, 0.94, (38.0, 26.0, 20.0)),
    Population("thick disc", ((OLD_BRANCH, 1.0), (CLUMP, 0.7), (WHITE_DWARFS, 1.5)), -0.05, 0.80, (63.0, 45.0, 40.0)),
    Population("bulge", ((OLD_BRANCH, 1.0), (CLUMP, 1.0), (WHITE_DWARFS, 1.5)), 0.08, 0.45, (105.0, 95.0, 85.0)),
    Population("halo", ((OLD_BRANCH, 1.0), (HORIZONTAL_BRANCH, 1.0), (WHITE_DWARFS, 2.0)), -0.14, 0.05,
               (145.0, 110.0, 95.0)),
)  # fmt: skip
CLOUD = Population("clouds", ((YOUNG_MAIN, 0.7), (GIANTS, 1.3), (CLUMP, 1.3), (HORIZONTAL_BRANCH, 0.3)), -0.10)
OPEN = Population("open cluster", ((YOUNG_MAIN, 0.5), (OLD_MAIN, 0.5), (GIANTS, 0.1), (CLUMP, 0.2)))
GLOBULAR = Population("globular cluster", ((OLD_BRANCH, 1.0), (HORIZONTAL_BRANCH, 0.9), (WHITE_DWARFS, 1.0)), -0.12)

# Space densities: relative to the knots' numbers at the Sun; lengths in kpc (Bland-Hawthorn & Gerhard 2016).
YOUNG_LENGTH, YOUNG_HEIGHT = 2.8, 0.09
OLD_LENGTH, OLD_HEIGHT = 2.6, 0.30
THICK_SHARE, THICK_LENGTH, THICK_HEIGHT = 0.055, 2.0, 0.85
BULGE_SHARE, BULGE_AXES, BAR_ANGLE = 18.0, (1.50, 0.62, 0.42), 27.0  # the bar's near end at l > 0 (Wegg & Gerhard 2013)
HALO_SHARE, HALO_SLOPE, HALO_FLATTENING, HALO_CORE = 0.0025, 2.9, 0.7, 1.0
DISC_HOLE = 1.2  # the discs end at the bar

# Dust: A_G per kpc at the Sun, in a disc (Drimmel & Spergel 2001), broken up by a random texture of power-law spectrum.
DUST_DENSITY, DUST_LENGTH, DUST_HEIGHT = 0.95, 3.5, 0.11
TEXTURE_SLOPE, TEXTURE_STRENGTH, TEXTURE_SEED = 1.25, 0.65, 7
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
