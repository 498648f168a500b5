"""Space velocities from astrometry: what is seen of (U, V, W) along east, north and the line of sight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..rows import galactic
from ..rows.galactic import KM_S
from .evaluating import Columns
from .transforms import Transform

Array = np.ndarray
ICRS_TO_GALACTIC = np.array(galactic.ICRS_TO_GALACTIC)
OUTPUTS = ("U", "V", "W")
WANTED = ("deg", "deg", "mas", "mas/yr", "mas/yr", "km/s")
# What catalogues call a position; parallax and proper motions; and beside these the radial velocity, if there is one.
POSITIONS = (
    ("ra", "dec"), ("RA_ICRS", "DE_ICRS"), ("RAJ2000", "DEJ2000"), ("RAICRS", "DEICRS"), ("RArad", "DErad"),
    ("RAdeg", "DEdeg"), ("RAmdeg", "DEmdeg"), ("_RAJ2000", "_DEJ2000"), ("_RA", "_DE"), ("RA", "DEC"),
    ("TARGET_RA", "TARGET_DEC"),
)  # fmt: skip
MOTIONS = {
    ("parallax", "pmra", "pmdec"): ("radial_velocity", "dr2_radial_velocity"),
    ("Plx", "pmRA", "pmDE"): ("RV", "HRV", "RVDR2"),
    ("PARALLAX", "PMRA", "PMDEC"): ("VRAD",),
}
ASTROMETRY = (*POSITIONS[0], *next(iter(MOTIONS)))
# Sets of names in which each name comes.
NAMES = (
    *((*position, *ASTROMETRY[2:], "radial_velocity") for position in POSITIONS),
    *((*POSITIONS[0], *motions, velocity) for motions, velocities in MOTIONS.items() for velocity in velocities),
)


@dataclass(frozen=True)
class SpaceVelocity(Transform):
    """Velocities towards east, north and away from us in km/s, which are views of a heliocentric (U, V, W).

    U, V and W point to the Galactic centre, along Galactic rotation and to the north Galactic pole. ``inputs`` are
    position (degrees), parallax (mas), proper motions (mas/yr, with cos dec) and, where the table has it, the radial
    velocity (km/s). Noise is propagated to first order in the parallax; errors of the position do not matter. What is
    not observed, such as the radial velocity of most stars, is missing; without a positive parallax there is no value.
    """

    inputs: tuple[str, ...] = (*ASTROMETRY, "radial_velocity")
    outputs: tuple[str, ...] = OUTPUTS
    units: tuple[str, ...] = ("km/s", "km/s", "km/s")
    noise_at: float | None = None  # a velocity across the sky that noise is computed at, instead of each star's own
    projected = True
    views = ("velocity towards east", "velocity towards north", "radial velocity")

    def wants(self, name: str) -> str:
        """The unit that position, parallax, motions and radial velocity must be in."""
        return WANTED[self.inputs.index(name)]

    @property
    def exact(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.inputs[:2]

    @property
    def uncertain(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.inputs[2:]

    def needs(self, output: str) -> tuple[str, ...]:
        """The inputs that one of the values depends on; none where there is no radial velocity at all."""
        ra, dec, parallax, pmra, pmdec, *radial = self.inputs
        return {
            self.outputs[0]: (ra, dec, parallax, pmra),
            self.outputs[1]: (ra, dec, parallax, pmdec),
            self.outputs[2]: (ra, dec, *radial) if radial else (),
        }[output]

    def __call__(self, columns: Columns) -> list[tuple[Array, Mapping[str, Any]]]:
        """Velocities towards east and north, and the radial velocity, with derivatives."""
        _, _, name, *motions = self.inputs
        parallax = np.where(columns[name] > 0, columns[name], np.nan)
        lost = np.isnan(columns[self.inputs[0]]) | np.isnan(columns[self.inputs[1]])
        outputs: list[tuple[Array, Mapping[str, Any]]] = []
        for motion in motions[:2]:
            value = np.where(lost, np.nan, KM_S * columns[motion] / parallax)
            moving = value if self.noise_at is None else self.noise_at
            outputs.append((value, {motion: KM_S / parallax, name: -moving / parallax}))
        if len(motions) == 2:
            return [*outputs, (np.full(len(parallax), np.nan), {})]
        return [*outputs, (np.where(lost, np.nan, columns[motions[2]]), {motions[2]: np.ones(len(parallax))})]

    def with_noise_at(self, value: float) -> SpaceVelocity:
        """The same with the noise of stars that all move at one velocity along each axis across the sky."""
        return replace(self, noise_at=value)

    def directions(self, columns: Columns) -> Array:
        """East, north and outwards at each position as matrices (3, 3, n) over (U, V, W)."""
        ra, dec = (np.radians(np.nan_to_num(columns[name])) for name in self.inputs[:2])
        zero, sr, cr, sd, cd = np.zeros_like(ra), np.sin(ra), np.cos(ra), np.sin(dec), np.cos(dec)
        axes = np.array([[-sr, cr, zero], [-sd * cr, -sd * sr, cd], [cd * cr, cd * sr, sd]])
        return np.einsum("ean,ga->egn", axes, ICRS_TO_GALACTIC)


def spelling(columns: Sequence[str]) -> tuple[str, ...]:
    """What a table with these columns calls a position, parallax and motions: as Gaia does unless it has another's."""
    position = next((names for names in POSITIONS if set(names) <= set(columns)), POSITIONS[0])
    motions = next((names for names in MOTIONS if set(names[1:]) <= set(columns)), ASTROMETRY[2:])
    return (*position, *motions)


def space_velocity(columns: Sequence[str] = ()) -> SpaceVelocity:
    """The transform for a table with these columns, which may be called as in Gaia, VizieR or DESI."""
    names = spelling(columns)
    if not set(names) <= set(columns):
        positions, motions = ("; ".join(map(", ".join, known)) for known in (POSITIONS, MOTIONS))
        raise ValueError(f"velocities need a position, a parallax and proper motions: one of {positions}; and one of "
                         f"{motions}")  # fmt: skip
    velocity = [name for name in MOTIONS[names[2:]] if name in columns][:1]  # type: ignore[index]
    return SpaceVelocity((*names, *velocity))
