"""Drawing stars from the tables of the sky: their true places, motions, magnitudes and colours."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..rows.galactic import ICRS_TO_GALACTIC, KM_S
from . import sky, tables

CHUNK = 1 << 18
CPU_BLOCK = 1 << 15  # rows at a time, so that columns stay in cache and few rows cost little


class Draws:
    """Random numbers of one chunk, a block of rows at a time: small blocks on a CPU, the whole chunk elsewhere."""

    def __init__(self, seed: int, c: int, device: torch.device) -> None:
        # Torch's CPU generator keeps 32 bits of a seed: neighbours, not hashes, so that no two chunks collide.
        start = int(np.random.SeedSequence(seed).generate_state(1)[0])
        self.generator = torch.Generator(device).manual_seed((start + c) % (1 << 32))
        self.device = device
        self.rows = CPU_BLOCK if device.type == "cpu" else CHUNK

    def uniform(self, k: int) -> Tensor:
        return torch.rand(k, self.rows, generator=self.generator, device=self.device)

    def normal(self, k: int) -> Tensor:
        return torch.randn(k, self.rows, generator=self.generator, device=self.device)


@dataclass(frozen=True)
class _Chosen:
    """Per star (n,): of the field or not, its cell and line of sight or its object, its population and its name."""

    field: Tensor
    cell: Tensor
    line: Tensor
    object: tables.Objects
    population: Tensor
    name: Tensor


def products(vectors: tuple[tuple[float, ...], ...], v: Tensor) -> list[Tensor]:
    """Scalar products of fixed vectors with v (3, n), summed in a fixed order, as no matrix product promises."""
    return [a * v[0] + b * v[1] + c * v[2] for a, b, c in vectors]


def choose(draw: Draws, t: tables.Tables) -> Tensor:
    """For every row of the chunk (CHUNK,) a cell of the field or an object."""
    u = torch.rand(CHUNK, generator=draw.generator, device=draw.device, dtype=torch.float64)
    return torch.searchsorted(t.cells, u, right=True).clamp(max=len(t.cells) - 1)


def _look_up(t: tables.Tables, at: Tensor) -> _Chosen:
    lines, kinds = tables.LONGITUDES * tables.LATITUDES, len(sky.FIELD)
    field = at < kinds * lines
    which = (at - kinds * lines).clamp(min=0)
    cell = torch.where(field, at, 0)
    thing = t.objects.map(lambda values: values[..., which])
    population = torch.where(field, cell // lines, thing.population)
    name = torch.where(field, cell // lines, kinds + which).to(torch.int8)
    return _Chosen(field, cell, cell % lines, thing, population, name)


def stars(draw: Draws, t: tables.Tables, cells: Tensor) -> tuple[Tensor, Tensor]:
    """True values (7, n) float32 of what Gaia sees in the cells (n,), and each star's place in POPULATIONS."""
    chosen = _look_up(t, cells)
    direction, distance = _places(draw, t, chosen)
    velocity = _velocities(draw, t, chosen, direction * distance)
    G, colour = _photometry(draw, t, chosen, distance)
    (x, y, z), v = (products(tuple(zip(*ICRS_TO_GALACTIC, strict=True)), a) for a in (direction, velocity))
    equator = torch.hypot(x, y).clamp(min=1e-7)
    c, s = x / equator, y / equator
    ra = torch.remainder(torch.rad2deg(torch.atan2(y, x)), 360.0).clamp(max=359.9999)
    dec = torch.rad2deg(torch.atan2(z, equator))
    per_kpc = 1 / (KM_S * distance)
    pmra = (c * v[1] - s * v[0]) * per_kpc
    pmdec = (equator * v[2] - z * (c * v[0] + s * v[1])) * per_kpc
    return torch.stack([ra, dec, 1 / distance, pmra, pmdec, colour, G]), chosen.name


def _places(draw: Draws, t: tables.Tables, chosen: _Chosen) -> tuple[Tensor, Tensor]:
    """Unit vectors (3, n), Galactic, and distances (n,) in kpc."""
    # Triangular jitter over neighbouring cells: the sky is the table's linear interpolation.
    jitter = draw.uniform(4)
    l = (chosen.line // tables.LATITUDES + jitter[0] + jitter[1] - 0.5) * (2 * math.pi / tables.LONGITUDES)
    row = chosen.line % tables.LATITUDES + jitter[2] + jitter[3] - 0.5
    b = tables.latitude(tables.LATITUDES - (tables.LATITUDES - row.abs()).abs())
    in_field = torch.stack([torch.cos(b) * torch.cos(l), torch.cos(b) * torch.sin(l), torch.sin(b)])
    # t of density 12 t^2 (1 - t), that of the quantiles' spacing, is a Beta(3, 2) variable.
    e = [torch.log1p(-u) for u in draw.uniform(5)]
    three = e[0] + e[1] + e[2]
    share = three / (three + e[3] + e[4]).clamp(max=-1e-30)
    distance = tables.interpolate(t.distance, chosen.cell, share.clamp(max=1 - 1e-6) * tables.QUANTILES)
    # Radii of a Plummer sphere and of an exponential disc, seen in projection.
    u, v, angle = draw.uniform(3)
    o = chosen.object
    radius = torch.where(o.disc > 0, -torch.log1p(-u) - torch.log1p(-v), (u / (1.02 - u)).sqrt())
    angle = 2 * math.pi * angle
    around = o.centre + radius * (torch.cos(angle) * o.along + torch.sin(angle) * o.across)
    around = around / around.norm(dim=0)
    away = (o.distance + o.depth * draw.normal(1)[0]).clamp(min=0.5 * o.distance)
    return torch.where(chosen.field, in_field, around), torch.where(chosen.field, distance, away)


def _velocities(draw: Draws, t: tables.Tables, chosen: _Chosen, position: Tensor) -> Tensor:
    """Velocities with respect to the Sun (3, n), km/s, Galactic."""
    random = draw.normal(3)
    x, y = position[0] - sky.SUN_RADIUS, position[1]
    R = torch.hypot(x, y).clamp(min=1e-3)
    rotation, *dispersion = t.kinematics[:, chosen.population]
    circular = sky.CIRCULAR_SPEED * R / torch.hypot(R, torch.full_like(R, sky.CORE))
    outward, around = random[0] * dispersion[0], rotation * circular + random[1] * dispersion[1]
    U, V, W = sky.SUN_MOTION
    of_field = torch.stack([
        (outward * x + around * y) / R - U,
        (outward * y - around * x) / R - (sky.CIRCULAR_SPEED + V),
        random[2] * dispersion[2] - W,
    ])  # fmt: skip
    return torch.where(chosen.field, of_field, chosen.object.velocity + chosen.object.dispersion * random)


def _photometry(draw: Draws, t: tables.Tables, chosen: _Chosen, distance: Tensor) -> tuple[Tensor, Tensor]:
    """Apparent G and BP - RP, (n,) each; G is never fainter than the limit."""
    limit, at, pick, double, brighter = draw.uniform(5)
    scatter, dust = draw.normal(2)
    extinction = tables.interpolate(t.extinction, chosen.line, tables.distance_index(distance))
    extinction = torch.where(chosen.field, extinction, chosen.object.extinction) * torch.exp(
        sky.EXTINCTION_SCATTER * dust
    )
    dimming = 5 * torch.log10(distance) + 10 + extinction
    faintest = sky.FAINT_LIMIT - sky.SOFTNESS * limit - torch.where(chosen.field, t.crowded[chosen.line], 0.0)
    M = _magnitudes(t, chosen.population, at, sky.BRIGHT_LIMIT - dimming, faintest - dimming)
    place = tables.magnitude_index(M)
    shares = t.sequence[:, :3].reshape(-1)
    step = chosen.population * (3 * tables.MAGNITUDES) + place.round().long()
    sequence = sum((pick > shares[step + i * tables.MAGNITUDES]).long() for i in range(3))
    line = chosen.population * 4 + sequence
    single = M + torch.where(double < sky.BINARY_SHARE, brighter * t.binaries.flatten()[line], 0.0)
    colour = tables.interpolate(t.colour, line, tables.magnitude_index(single)) + t.scatter.flatten()[line] * scatter
    return M + dimming, colour + sky.REDDENING * extinction / (1 + extinction / sky.SATURATION)


def _magnitudes(t: tables.Tables, population: Tensor, u: Tensor, bright: Tensor, faint: Tensor) -> Tensor:
    """Absolute magnitudes from the luminosity function between two limits, by its inverse."""
    low, high = (
        torch.exp(tables.interpolate(t.luminosity, population, tables.magnitude_index(M))) for M in (bright, faint)
    )
    share = torch.log(torch.lerp(low, high, u))
    M = tables.interpolate(t.magnitude, population, tables.share_index(share))
    return torch.minimum(torch.maximum(M, bright), faint)
