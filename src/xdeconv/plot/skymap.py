"""The sky: positions in Mollweide's projection, which keeps areas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..mixture._mixture import Mixture
from ..mixture.coordinates import Coordinate
from ..rows.units import ANGLES, factor
from .axes import ON_DARK, Array, Given, at, name_of, new_axes, rows_of, scatter, some, thin, values_of
from .components import ellipses
from .viewing import blurred, views

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# What catalogues call longitudes and latitudes, and what is made by tangent, galactic and rotation; in lower case.
POSITIONS = (
    ("ra", "dec"), ("l", "b"), ("ecl_lon", "ecl_lat"), ("ra_deg", "dec_deg"), ("ra_icrs", "de_icrs"),
    ("raicrs", "deicrs"), ("rarad", "derad"), ("radeg", "dedeg"), ("ramdeg", "demdeg"), ("_raj2000", "_dej2000"),
    ("_ra", "_de"),
    ("raj2000", "dej2000"), ("glon", "glat"), ("elon", "elat"), ("phi1", "phi2"), ("xi", "eta"),
)  # fmt: skip
SQUARE_DEGREES = (180 / np.pi) ** 2
RANGE = 1e3  # of densities, from the darkest to the brightest
FIELD = 60.0  # degrees: what is smaller is drawn by itself
BRIGHTEST = 0.998  # quantile of the sky: the poles, where a longitude means nothing, must not set the scale


def sky(
    mixture: Mixture,
    coordinates: Sequence[Coordinate] | None = None,
    ax: Axes | None = None,
    *,
    data: Any = None,
    given: Given | None = None,
    limits: Any = None,
    components: bool = False,
    center: float = 0.0,
    bins: int = 180,
    points: int = 5000,
    cmap: str = "magma",
) -> Axes:
    """The density per square degree over the sky, on a logarithmic scale, with east to the left.

    The whole sky is drawn, or, where all lies within 60 degrees or ``limits`` are given, that part of it. What the
    model puts beyond 360 degrees or over a pole is shown where it is on the sky.

    Parameters
    ----------
    mixture : Mixture
        The density of the true values.
    coordinates : sequence of str or int, optional
        A longitude and a latitude in degrees or the model's unit; by default those with known names:
        ra and dec, l and b, xi and eta, phi1 and phi2, ...
    ax : matplotlib.axes.Axes, optional
        Where to draw the whole sky: an axes of the projection "mollweide"; a new figure by default.
    data : array-like (n, d), table or Batch, optional
        Rows to be drawn as dots.
    given : dict, optional
        Values at which other coordinates are held: {label or number: value}.
    limits : dict, optional
        The part of the sky to draw: {coordinate: (low, high)}, in the model's units.
    components : bool, default False
        Draw an ellipse of 1 sigma for each component, on a part of the sky.
    center : float, default 0.0
        The longitude in the middle, in degrees.
    bins : int, default 180
        Points of the grid along an axis.
    points : int, default 5000
        At most so many rows are drawn.
    cmap : str, default "magma"
        A colour map of matplotlib.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn on.
    """
    mixture = at(mixture, given)
    chosen = mixture.indices(_positions(mixture, coordinates))
    to_degrees = np.array([_degrees(mixture, a) for a in chosen])
    values = None if data is None else values_of(rows_of(mixture, data), chosen)
    rows = np.empty((0, 2)) if values is None else values[thin(len(values), points)] * to_degrees
    ends = zip(views(mixture, chosen, limits), to_degrees, strict=True)
    field = [(low * scale, high * scale) for (low, high), scale in ends]
    if ax is None and (limits or _is_field(field)):
        ax = _field(mixture, chosen, to_degrees, field, rows, bins, cmap)
        return (
            ellipses(_in_degrees(some(mixture, chosen, 2), to_degrees), [0, 1], ax, color=ON_DARK) if components else ax
        )
    if components:
        raise ValueError(
            "components are drawn on a part of the sky, such as limits= (--limits) choose, not on all of it"
        )
    if ax is None:
        ax = new_axes(1, 1, (8.0, 4.6), subplot_kw={"projection": "mollweide"})
    x, y, density = sky_density(some(mixture, chosen, 2), to_degrees, center, bins)
    _colours(ax, -np.radians(x), np.radians(y), density, cmap)
    if len(rows):
        longitudes = np.mod(rows[:, 0] - center + 180, 360) - 180
        scatter(ax, np.radians(np.stack([-longitudes, rows[:, 1]], axis=1)), "w", zorder=2)
    return _graticule(ax, mixture, (chosen[0], chosen[1]), center)


def _colours(ax: Axes, x: Array, y: Array, density: Array, cmap: str) -> None:
    """The density in each cell, on a logarithmic scale, with a bar that says what colours mean."""
    from matplotlib.colors import LogNorm

    top = np.quantile(density, BRIGHTEST)
    top = top if top > density.max() / RANGE**2 else density.max()  # a spot on an empty sky
    drawn = ax.pcolormesh(x, y, density, norm=LogNorm(top / RANGE, top, clip=True), cmap=cmap, rasterized=True)
    ax.figure.colorbar(drawn, ax=ax, shrink=0.7, pad=0.03, extend="both", label="density per square degree")


def _in_degrees(pair: Mixture, to_degrees: Array) -> Mixture:
    V = pair.covariances * np.outer(to_degrees, to_degrees)
    labels = pair.labels or ("longitude", "latitude")
    return Mixture(pair.weights, pair.means * to_degrees, V, labels, ("deg", "deg"))


def _is_field(field: Sequence[Any]) -> bool:
    """Whether all lies in a part of the sky that is nearly flat, away from the poles."""
    (west, east), (south, north) = field
    return east - west < FIELD and north - south < FIELD and max(abs(south), abs(north)) < FIELD


def _field(
    mixture: Mixture, chosen: Sequence[int], to_degrees: Array, field: Sequence[Any], rows: Array, bins: int, cmap: str
) -> Axes:
    """A part of the sky, east to the left, as wide as it is high where a degree is a degree."""
    (west, east), (south, north) = field
    flat = (east - west) * np.cos(np.radians((south + north) / 2)) / (north - south)
    high = float(np.clip(4.8 / flat, 2.8, 4.8))
    ax = new_axes(1, 1, (max(high * flat, 2.4) + 1.6, high + 0.6))
    x, y = np.linspace(west, east, bins + 1), np.linspace(south, north, bins + 1)
    lon, lat = np.meshgrid((x[1:] + x[:-1]) / 2, (y[1:] + y[:-1]) / 2)
    pair = blurred(some(mixture, chosen, 2), np.array([x[1] - x[0], y[1] - y[0]]) / to_degrees)
    density = np.exp(pair.log_prob(np.stack([lon, lat], axis=-1).reshape(-1, 2) / to_degrees)).reshape(lon.shape)
    density = density / to_degrees.prod() / np.cos(np.radians(lat))
    _colours(ax, x, y, np.maximum(density, np.finfo(float).tiny), cmap)
    if len(rows):
        scatter(ax, rows, "w", zorder=2)
    names = [name_of(mixture, a) for a in chosen] if mixture.labels else ["longitude", "latitude"]
    ax.set(xlabel=f"{names[0]} [deg]", ylabel=f"{names[1]} [deg]")
    ax.set(xlim=(east, west), ylim=(south, north))
    ax.set_aspect(1 / np.cos(np.radians((south + north) / 2)))
    ax.ticklabel_format(useOffset=False)
    ax.locator_params(axis="x", nbins=5 if flat > 0.6 else 3)
    return ax


def sky_density(pair: Mixture, to_degrees: Array, center: float, bins: int) -> tuple[Array, Array, Array]:
    """Edges of longitude about the centre and of latitude, in degrees, and the density per square degree in each cell.

    The cells are (bins, 2 bins). A longitude of 370 is one of 10, a latitude of 95 one of 85 on the other side.
    """
    x, y = np.linspace(-180, 180, 2 * bins + 1), np.linspace(-90, 90, bins + 1)
    lon, lat = np.meshgrid((x[1:] + x[:-1]) / 2 + center, (y[1:] + y[:-1]) / 2)
    total, pair = np.zeros(lon.shape), blurred(pair, 180 / bins / to_degrees)
    for turned, image in ((0, lat), (180, 180 - lat), (180, -180 - lat)):
        for around in (-720, -360, 0, 360, 720):
            rows = np.stack([lon + turned + around, image], axis=-1).reshape(-1, 2)
            near = _near(pair, rows / to_degrees)
            total.flat[near] += np.exp(pair.log_prob(rows[near] / to_degrees)) / to_degrees.prod()
    return x, y, np.maximum(total / np.cos(np.radians(lat)), np.finfo(float).tiny)


def _near(pair: Mixture, rows: Array) -> Array:
    """Which rows (n, 2) are within eight standard deviations of any component, in each coordinate: bounds only."""
    sd = 8 * np.sqrt(np.einsum("kaa->ka", pair.covariances))
    low, high = (pair.means - sd).min(axis=0), (pair.means + sd).max(axis=0)
    return np.flatnonzero(((rows >= low) & (rows <= high)).all(axis=1))


def _positions(mixture: Mixture, coordinates: Sequence[Coordinate] | None) -> Sequence[Coordinate]:
    if coordinates is not None:
        if isinstance(coordinates, str) or len(coordinates) != 2:
            raise ValueError(f"give a longitude and a latitude, by label or index, got {coordinates!r}")
        return coordinates
    labels = {label.lower(): label for label in mixture.labels or ()}
    for longitude, latitude in POSITIONS:
        if longitude in labels and latitude in labels:
            return labels[longitude], labels[latitude]
    names = ", ".join(map(repr, mixture.labels or range(mixture.d)))
    raise ValueError(
        "which coordinates are longitude and latitude? Say coordinates=[LONGITUDE, LATITUDE], or --coordinates "
        f"LONGITUDE,LATITUDE; the model has {names}"
    )


def _degrees(mixture: Mixture, coordinate: int) -> float:
    """What turns a coordinate into degrees."""
    unit = (mixture.units[mixture.indices(coordinate)[0]] if mixture.units else "") or "deg"
    if unit not in ANGLES:
        raise ValueError(f"coordinate {coordinate} is in {unit!r}, which is not an angle on the sky")
    return factor(unit, "deg", "a position")


def _graticule(ax: Axes, mixture: Mixture, pair: tuple[int, int], center: float) -> Axes:
    """Longitudes to the left, in degrees, named as the model names them."""
    names = [name_of(mixture, a) for a in pair] if mixture.labels else ["longitude", "latitude"]
    lines = np.arange(-150, 151, 30)
    ax.set_xticks(np.radians(lines), [f"{(center - at_x) % 360:.0f}°" for at_x in lines])
    ax.tick_params(axis="x", colors="w", labelsize="small")
    for text in ax.get_xticklabels():
        text.set_alpha(0.8)
    ax.grid(color="w", alpha=0.25, lw=0.5)
    ax.set_xlabel(names[0])
    ax.set_ylabel(names[1])
    return ax
