"""Sky coordinates as features: tangent-plane offsets, Galactic coordinates, any rotation, with exact Jacobians.

Errors of ra are those of plain ra in degrees (a Recipe has divided by cos dec). Proper motions include the cosine of
the latitude, in and out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .evaluating import Columns
from .expressions import Expression
from .transforms import Formulated, Transform
from .velocities import OUTPUTS, SpaceVelocity, space_velocity, spelling

Array = np.ndarray
EQUATORIAL = ("ra", "dec", "pmra", "pmdec")
UNITS = ("deg", "deg", "mas/yr", "mas/yr")
# The north Galactic pole and the Galactic longitude of the north celestial pole, ICRS (ESA 1997, volume 1, 1.5.3).
NORTH_POLE, POLE_LONGITUDE = (192.85948, 27.12825), 122.93192
# What the words of ``derive`` make.
NAMED = {
    "tangent:RA,DEC": ("xi", "eta"),
    "galactic": ("l", "b", "pml", "pmb"),
    "galactic-positions": ("l", "b"),
    "rotation:POLE_RA,POLE_DEC,ZERO_RA,ZERO_DEC": ("phi1", "phi2", "pm_phi1", "pm_phi2"),
    "velocities": OUTPUTS,
}


@dataclass(frozen=True)
class Rotation(Transform):
    """Longitude, latitude (degrees) and proper motions in a frame rotated by a (3, 3) matrix; motions are optional.

    The new unit vector is matrix @ (cos dec cos ra, cos dec sin ra, sin dec).
    """

    matrix: tuple[tuple[float, ...], ...]
    outputs: tuple[str, ...]
    inputs: tuple[str, ...] = EQUATORIAL
    wrap: float = 0.0  # longitudes lie in [wrap, wrap + 360)

    def __post_init__(self) -> None:
        R = np.array(self.matrix, dtype=float)
        if R.shape != (3, 3) or not np.allclose(R @ R.T, np.eye(3), atol=1e-9):
            raise ValueError("a rotation needs an orthogonal (3, 3) matrix")
        if len(self.outputs) not in (2, 4) or len(self.inputs) != len(self.outputs):
            raise ValueError("a rotation has two outputs (positions), or four with proper motions; inputs alike")

    @property
    def units(self) -> tuple[str, ...]:  # type: ignore[override]
        return UNITS[: len(self.outputs)]

    def wants(self, name: str) -> str:
        """Angles in degrees, motions in mas/yr."""
        return UNITS[self.inputs.index(name)]

    def needs(self, output: str) -> tuple[str, ...]:
        """The inputs that an output depends on."""
        return self.inputs[:2] if output in self.outputs[:2] else self.inputs

    def __call__(self, columns: Columns) -> list[tuple[Array, Mapping[str, Any]]]:
        """Values and derivatives of all outputs."""
        ra, dec = (np.radians(np.asarray(columns[name], dtype=float)) for name in self.inputs[:2])
        sr, cr, sd, cd = np.sin(ra), np.cos(ra), np.sin(dec), np.cos(dec)
        R = np.array(self.matrix, dtype=float)
        x, y, z = R @ np.stack([cd * cr, cd * sr, sd])
        cl = np.hypot(x, y)
        with np.errstate(all="ignore"):
            east = np.stack([-y, x]) / cl  # of the new frame; its third component is 0
            e, n = R[:2] @ np.stack([-sr, cr, 0 * sr]), R[:2] @ np.stack([-sd * cr, -sd * sr, cd])
            c, s = (east * e).sum(0), (east * n).sum(0)  # the angle between the two norths
            lon = np.mod(np.degrees(np.arctan2(y, x)) - self.wrap, 360.0) + self.wrap
            lat = np.degrees(np.arctan2(z, cl))
            return self._outputs(columns, lon, lat, c, s, cd, sd, cl, z)

    def _outputs(
        self, columns: Columns, lon: Array, lat: Array, c: Array, s: Array, cd: Array, sd: Array, cl: Array, z: Array
    ) -> list[tuple[Array, Mapping[str, Any]]]:
        first, second = self.inputs[:2]
        on_lon = {first: c * cd / cl, second: s / cl}
        outputs: list[tuple[Array, Mapping[str, Any]]] = [(lon, on_lon), (lat, {first: -s * cd, second: c})]
        if len(self.outputs) == 2:
            return outputs
        pm = [np.asarray(columns[name], dtype=float) for name in self.inputs[2:]]
        along, across = c * pm[0] + s * pm[1], c * pm[1] - s * pm[0]
        # The angle turns by sin(lat) d lon - sin(dec) d ra: two frames that each follow their own meridians.
        turn = {first: (z * on_lon[first] - sd) * np.pi / 180, second: z * on_lon[second] * np.pi / 180}
        a, b = self.inputs[2:]
        outputs.append((along, {a: c, b: s, **{name: across * t for name, t in turn.items()}}))
        outputs.append((across, {a: -s, b: c, **{name: -along * t for name, t in turn.items()}}))
        return outputs


def galactic(
    proper_motions: bool = True, names: Sequence[str] = ("l", "b", "pml", "pmb"), wrap: float = 0.0,
    inputs: Sequence[str] = EQUATORIAL,
) -> Rotation:  # fmt: skip
    """Galactic longitude and latitude, and proper motions along them, from ra, dec, pmra, pmdec.

    ``wrap=-180`` puts the Galactic centre in the middle.
    """
    kept = 4 if proper_motions else 2
    return Rotation(_matrix(*NORTH_POLE, POLE_LONGITUDE), tuple(names)[:kept], tuple(inputs)[:kept], wrap)


def rotation(
    pole: tuple[float, float],
    zero: tuple[float, float],
    names: Sequence[str] = ("phi1", "phi2", "pm_phi1", "pm_phi2"),
    wrap: float = -180.0,
    inputs: Sequence[str] = EQUATORIAL,
) -> Rotation:
    """Coordinates about a great circle, as streams have: ``pole`` (ra, dec) and the point ``zero`` of longitude 0."""
    z, towards = _vector(*pole), _vector(*zero)
    x = towards - (towards @ z) * z
    if np.linalg.norm(x) < 1e-9:
        raise ValueError("the point of longitude 0 is the pole itself")
    x = x / np.linalg.norm(x)
    matrix = np.stack([x, np.cross(z, x), z])
    kept = tuple(names)
    return Rotation(tuple(map(tuple, matrix.tolist())), kept, tuple(inputs)[: len(kept)], wrap)


def tangent(
    ra: float, dec: float, names: Sequence[str] = ("xi", "eta"), inputs: Sequence[str] = EQUATORIAL
) -> tuple[Formulated, Formulated]:
    """Gnomonic offsets in degrees from a centre, east and north; rows more than 90 degrees away are not defined."""
    d0 = math.radians(dec)
    s0, c0 = repr(math.sin(d0)), repr(math.cos(d0))
    d, turn = f"radians({inputs[1]})", f"radians({inputs[0]} - {float(ra)!r})"
    depth = f"({s0} * sin({d}) + {c0} * cos({d}) * cos({turn}))"
    depth = f"sqrt({depth}) ** 2"  # NaN on the far side
    east = f"degrees(cos({d}) * sin({turn}) / {depth})"
    north = f"degrees(({c0} * sin({d}) - {s0} * cos({d}) * cos({turn})) / {depth})"
    angles = tuple(inputs[:2])
    return tuple(
        Formulated(name, Expression(text), "deg", angles) for name, text in zip(names, (east, north), strict=True)
    )  # type: ignore[return-value]


def parse_transform(text: str, columns: Sequence[str] = ()) -> Any:
    """Transforms by their names: those of ``NAMED``. What they are made of depends on the columns there are."""
    kind, _, rest = text.partition(":")
    ra, dec, _, *motions = spelling(columns)
    inputs = (ra, dec, *motions[:2])
    try:
        numbers = [float(part) for part in rest.split(",")] if rest else []
        if kind in ("galactic", "galactic-positions") and not numbers:
            return galactic(kind == "galactic", inputs=inputs)
        if kind == "velocities" and not numbers:
            return space_velocity(columns)
        if kind == "tangent" and len(numbers) == 2:
            return tangent(numbers[0], numbers[1], inputs=inputs)
        if kind == "rotation" and len(numbers) == 4:
            return rotation((numbers[0], numbers[1]), (numbers[2], numbers[3]), inputs=inputs)
    except ValueError as problem:
        raise ValueError(f"cannot read the transform {text!r}: {problem}") from problem
    known = "; ".join(f"{word} (makes {', '.join(made)})" for word, made in NAMED.items())
    raise ValueError(f"{text!r} is not a transform: NAME=EXPRESSION, or {known}")


def _vector(ra: float, dec: float) -> Array:
    a, d = math.radians(ra), math.radians(dec)
    return np.array([math.cos(d) * math.cos(a), math.cos(d) * math.sin(a), math.sin(d)])


def _matrix(pole_ra: float, pole_dec: float, longitude: float) -> tuple[tuple[float, ...], ...]:
    """The rotation to the frame with this pole, in which the old pole has this longitude."""
    z = _vector(pole_ra, pole_dec)
    towards = np.array([0.0, 0.0, 1.0])
    north = towards - (towards @ z) * z
    north = north / np.linalg.norm(north)
    angle = math.radians(longitude)
    east = np.cross(z, north)
    x = math.cos(angle) * north - math.sin(angle) * east
    return tuple(map(tuple, np.stack([x, np.cross(z, x), z]).tolist()))


__all__ = ["NAMED", "Rotation", "SpaceVelocity", "Transform", "galactic", "parse_transform", "rotation", "tangent"]
