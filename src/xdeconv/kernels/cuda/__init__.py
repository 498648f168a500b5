"""Kernels for GPUs: accumulate, log_prob and log_joint for up to 128 dimensions.

Up to 10, by Triton, with matrices in registers; above (``large``), by CUDA C where it compiles and the rows have no
projection, else by Triton with matrices in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, wraps
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from torch import Tensor

from ...rows.batch import Batch
from .. import reference
from ..groups import Groups, GroupSums
from ..options import DEFAULT, Options
from ..stats import Stats
from .triton_import import interpreted, triton

if TYPE_CHECKING:
    from .densities import Plan
    from .groups import GroupRows
    from .large import Launch

LARGEST = 128  # dimensions, latent or observed
IN_REGISTERS = 10  # those whose matrices fit in registers
LARGEST_GROUP = 4  # components of a group whose sums fit in registers
SLICE = 1 << 22  # rows whose tiles are in memory at a time
ALIVE_CHUNK = 2048  # rows that are listed together when only the pairs alive are summed
CAN = (torch.float32, torch.float64)
Result = TypeVar("Result")


def at_home(function: Callable[..., Result]) -> Callable[..., Result]:
    """Runs on the batch's device; quietly, since interpreted kernels compute with NumPy, which warns of NaN."""

    @wraps(function)
    def inner(
        log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, options: Options = DEFAULT
    ) -> Result:
        with np.errstate(all="ignore"), torch.cuda.device_of(batch.x):
            return function(log_weights, means, covariances, batch, options)

    return inner


def beside(inside: Tensor, background: Tensor) -> tuple[Tensor, Tensor]:
    """Log-densities (n,) with a background added, and the share (n,) of each row that is not the background's."""
    whole = torch.logaddexp(inside, background.to(inside.dtype))
    return whole, torch.where(inside == -torch.inf, 0.0, (inside - whole).exp())


def refuses(batch: Batch, k: int, d: int) -> str | None:
    """Why Triton cannot take this; it runs on CUDA devices, or interpreted on the CPU under TRITON_INTERPRET=1."""
    if triton is None:
        return "triton is not installed"
    if batch.device.type != "cuda" and not interpreted():
        return f"its rows are on {batch.device.type}, not on a CUDA device"
    if max(d, batch.p) > LARGEST:
        return f"it has {max(d, batch.p)} dimensions and kernels end at {LARGEST}"
    if batch.dtype not in CAN:
        return f"its type is {batch.dtype}, not float32 or float64"
    return None


def refuses_slopes(batch: Batch, d: int) -> str | None:
    """Always: Triton's kernels do not sum derivatives by errors."""
    return "fitted factors on errors have no Triton kernel"


@at_home
def accumulate(
    log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, options: Options = DEFAULT
) -> Stats:
    """The five sums over the rows of a batch; the same bits whenever the same batch comes again."""
    if is_large(batch):
        from . import large

        return large.accumulate(log_weights, means, covariances, batch, options, launch_for(batch))
    if batch.background is not None:
        return _beside_background(log_weights, means, covariances, batch, options)
    from . import densities as triton_rows
    from . import order as triton_order
    from . import sums as triton_sums

    k, d = means.shape
    total = Stats(torch.empty(Stats.size(k, d), dtype=torch.float64, device=batch.device), k, d)
    if batch.n == 0:
        return Stats(total.packed.zero_(), k, d)
    shape = triton_rows.shape_of(batch)
    table = triton_rows.table_of(log_weights, means, covariances, batch, shape)
    order = None
    for number, part in enumerate(batch.chunks(SLICE)):
        plan = plan_for(part, k, options)
        rows = triton_rows.tiles_of(part, shape, plan.padded)
        alive = rows.new_empty(k, plan.padded // 32, dtype=torch.int32) if plan.skip else None
        partial = triton_rows.densities(table, rows, part, shape, plan, alive)
        row_sums = triton_rows.close(partial, rows, part, shape, keep=True)
        if alive is None:
            sums = triton_sums.partial_sums(table, rows, part, shape, plan)
        else:
            order = triton_order.like_beside_like(alive) if order is None else order
            sums = triton_sums.alive_sums(table, rows, part, shape, plan, alive, order)
        out = total.packed if number == 0 else torch.empty_like(total.packed)
        triton_sums.join(sums, row_sums, table, shape, out)
        if number:
            total.packed.add_(out)
    return total


def _beside_background(
    log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, options: Options
) -> Stats:
    """Two launches: what a background takes of a row is taken of its weight."""
    assert batch.background is not None
    alone = replace(batch, background=None)
    density, share = beside(log_prob(log_weights, means, covariances, alone, options), batch.background)
    weight = torch.ones_like(density) if batch.weight is None else batch.weight
    sums = accumulate(log_weights, means, covariances, replace(alone, weight=weight * share), options)
    sums.rows.copy_(weight.sum(dtype=torch.float64))
    sums.loglik.copy_((weight.double() * density.double()).sum())
    return sums


@at_home
def log_prob(
    log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, options: Options = DEFAULT
) -> Tensor:
    """Log-density of each row (n,)."""
    if is_large(batch):
        from . import large

        return large.log_prob(log_weights, means, covariances, batch, options, launch_for(batch))
    if batch.background is not None:
        inside = log_prob(log_weights, means, covariances, replace(batch, background=None), options)
        return beside(inside, batch.background)[0]
    from . import densities as triton_rows

    if batch.n == 0:
        return batch.x.new_empty(0)
    shape = triton_rows.shape_of(batch)
    table = triton_rows.table_of(log_weights, means, covariances, batch, shape)
    parts = []
    for part in batch.chunks(SLICE):
        plan = plan_for(part, len(means), options)
        rows = triton_rows.tiles_of(part, shape, plan.padded)
        partial = triton_rows.densities(table, rows, part, shape, plan)
        parts.append(triton_rows.close(partial, rows, part, shape, keep=False))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


@at_home
def log_joint(
    log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, options: Options = DEFAULT
) -> Tensor:
    """log alpha_j + log N(x_i | R_i m_j, T_ij), (n, k)."""
    if is_large(batch):
        from . import large

        return large.log_joint(log_weights, means, covariances, batch, options, launch_for(batch))
    from . import densities as triton_rows
    from . import sums as triton_sums

    if batch.n == 0:
        return batch.x.new_empty(0, len(means))
    shape = triton_rows.shape_of(batch)
    table = triton_rows.table_of(log_weights, means, covariances, batch, shape)
    parts = []
    for part in batch.chunks(SLICE):
        plan = plan_for(part, len(means), options)
        rows = triton_rows.tiles_of(part, shape, plan.padded)
        parts.append(triton_sums.joints(table, rows, part, shape, plan))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


@at_home
def posterior_moments(
    log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, options: Options = DEFAULT
) -> tuple[Tensor, Tensor]:
    """Posterior means (n, d) and packed covariances of each row; by dense algebra for views and many dimensions."""
    if is_large(batch) or batch.projection is not None or batch.n == 0:
        return reference.posterior_moments(log_weights, means, covariances, batch, options)
    from . import posteriors

    table, shape = posteriors.table_and_shape(log_weights, means, covariances, batch)
    parts = []
    for part in batch.chunks(SLICE):
        parts.append(posteriors.moments(table, part, shape, plan_for(part, len(means), replace(options, skip=False))))
    whole = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
    return whole[: batch.d].T, whole[batch.d :].T


def is_large(batch: Batch) -> bool:
    """Whether matrices are too large for registers."""
    return max(batch.d, batch.p) > IN_REGISTERS


def launch_for(batch: Batch) -> Launch:
    """Two warps for each scheduler, a row per lane; when interpreted, few and wide programs."""
    from .large import Launch

    if interpreted():
        return Launch(power_of_two(batch.n, 32, 1 << 30) if batch.n < 200 else 128, 2)
    return Launch(32, 8 * multiprocessors(batch.device))


def for_groups(batch: Batch, d: int) -> GroupRows | Batch:
    """The batch as groups pick rows from it: in tiles, on its device."""
    if is_large(batch):
        return batch
    from .groups import in_tiles

    with np.errstate(all="ignore"), torch.cuda.device_of(batch.x):
        return in_tiles(batch, power_of_two(batch.n, 256, 1 << 30) if interpreted() else up(batch.n, 256))


def accumulate_groups(
    log_weights: Tensor, means: Tensor, covariances: Tensor, rows: GroupRows | Batch, groups: Groups
) -> GroupSums:
    """The sums of every group of rows over its own components; the same bits whenever the same groups come again."""
    from .groups import sums_of_groups

    if isinstance(rows, Batch):
        return reference.accumulate_groups(log_weights, means, covariances, rows, groups)
    if means.shape[1] > LARGEST_GROUP or len(groups) == 0 or rows.batch.n == 0:
        return reference.accumulate_groups(log_weights, means, covariances, rows.batch, groups)
    parts = 2 if interpreted() else max(1, min(64, 16 * multiprocessors(rows.batch.device) // len(groups)))
    with np.errstate(all="ignore"), torch.cuda.device_of(rows.batch.x):
        return sums_of_groups(log_weights, means, covariances, rows, groups, parts)


def plan_for(batch: Batch, k: int, options: Options) -> Plan:
    """Enough programs to fill the device; when interpreted, few and wide ones that still cross every boundary."""
    from .densities import Plan

    skip = options.skip and not batch.shared
    if interpreted():
        components = power_of_two(k, 8, 128)
        padded = power_of_two(batch.n, 256, 1 << 30)
        shares, chunk = (1, 256) if skip else (2 if batch.n < 50 else 1, 128)
        return Plan(padded, padded, 1, shares, chunk, 64 * components, 1, components, skip, 3, 512)
    processors = multiprocessors(batch.device)
    double = batch.dtype == torch.float64
    skip = skip and batch.n >= 1024 * processors and k >= 32
    padded = up(batch.n, ALIVE_CHUNK if skip else 256)
    block, warps = (64, 2) if double else (128, 1) if batch.shared else (64, 1)
    if padded < processors * 256:
        block, warps = 64, 2 if double else 1
    if skip:
        block, warps = 32, 1
    shares = 1 if skip else max(1, min(k // 4, -(-processors * 4 // (padded // block))))
    lanes = 128 if double or k <= 128 or padded < processors * 256 else 256
    components = power_of_two(k, 8, lanes)
    groups, blocks = lanes // components, -(-k // components)
    chunks = max(1, min(padded // (8 * groups), processors * 16 // blocks))
    chunk = ALIVE_CHUNK if skip else up(-(-padded // chunks), groups)
    return Plan(padded, block, warps, shares, chunk, lanes, 4, components, skip, processors * 16, 32)


def up(n: int, unit: int) -> int:
    """The smallest multiple of the unit that is at least n."""
    return -(-n // unit) * unit


def power_of_two(k: int, least: int, most: int) -> int:
    """The smallest power of two that is at least k, within bounds."""
    return min(most, max(least, 1 << (k - 1).bit_length()))


@cache
def multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count
