"""Triton on the GPU: accumulate, log_prob and log_joint for up to 10 dimensions, one source for all of them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from ..batch import Batch
from ..stats import Stats
from .options import DEFAULT, Options

LARGEST = 10  # dimensions, latent or observed, whose matrices fit in registers
SLICE = 1 << 20  # rows whose tiles are in memory at a time
CAN = (torch.float32, torch.float64)


@dataclass(frozen=True)
class Plan:
    """How many rows and components a program takes."""

    padded: int  # rows in tiles
    block: int  # rows of one program of the row kernel
    warps: int
    shares: int  # parts into which the row kernel splits the components
    chunk: int  # rows of one program of the statistics kernel
    lanes: int
    components: int  # of one program of the statistics kernel


quietly = np.errstate(all="ignore")  # the interpreter computes with NumPy, which warns where a GPU makes NaN


def refuses(batch: Batch, k: int, d: int) -> str | None:
    """Why Triton cannot take this; it runs on CUDA devices, or interpreted on the CPU under TRITON_INTERPRET=1."""
    try:
        import triton  # noqa: F401
    except ImportError:
        return "triton is not installed"
    if batch.device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return f"its rows are on {batch.device.type}, not on a CUDA device"
    if max(d, batch.p) > LARGEST:
        return f"it has {max(d, batch.p)} dimensions and the fused kernels end at {LARGEST}"
    if batch.dtype not in CAN:
        return f"its type is {batch.dtype}, not float32 or float64"
    return None


@quietly
def accumulate(log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, options: Options = DEFAULT) -> Stats:
    """The five sums over the rows of a batch; the same bits whenever the same batch comes again."""
    from . import triton_rows, triton_sums

    k, d = means.shape
    total = Stats(torch.empty(Stats.size(k, d), dtype=torch.float64, device=batch.device), k, d)
    if batch.n == 0:
        return Stats(total.packed.zero_(), k, d)
    shape = triton_rows.shape_of(batch)
    table = triton_rows.table_of(log_weights, means, covariances, batch, shape)
    for number, part in enumerate(batch.chunks(SLICE)):
        plan = plan_for(part, k)
        rows = triton_rows.tiles_of(part, shape, plan.padded)
        partial = triton_rows.densities(table, rows, part, shape, plan.padded, plan.block, plan.shares, plan.warps)
        row_sums = triton_rows.close(partial, rows, part, shape, keep=True)
        sums = triton_sums.partial_sums(
            table, rows, part, shape, plan.padded, plan.chunk, plan.lanes, plan.components
        )
        out = total.packed if number == 0 else torch.empty_like(total.packed)
        triton_sums.join(sums, row_sums, table, shape, out)
        if number:
            total.packed.add_(out)
    return total


@quietly
def log_prob(log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, options: Options = DEFAULT) -> Tensor:
    """Log-density of each row (n,)."""
    from . import triton_rows

    if batch.n == 0:
        return batch.x.new_empty(0)
    shape = triton_rows.shape_of(batch)
    table = triton_rows.table_of(log_weights, means, covariances, batch, shape)
    found = []
    for part in batch.chunks(SLICE):
        plan = plan_for(part, len(means))
        rows = triton_rows.tiles_of(part, shape, plan.padded)
        partial = triton_rows.densities(table, rows, part, shape, plan.padded, plan.block, plan.shares, plan.warps)
        found.append(triton_rows.close(partial, rows, part, shape, keep=False))
    return found[0] if len(found) == 1 else torch.cat(found)


@quietly
def log_joint(log_weights: Tensor, means: Tensor, covariances: Tensor, batch: Batch, options: Options = DEFAULT) -> Tensor:
    """log alpha_j + log N(x_i | R_i m_j, T_ij), (n, k)."""
    from . import triton_rows, triton_sums

    if batch.n == 0:
        return batch.x.new_empty(0, len(means))
    shape = triton_rows.shape_of(batch)
    table = triton_rows.table_of(log_weights, means, covariances, batch, shape)
    found = []
    for part in batch.chunks(SLICE):
        plan = plan_for(part, len(means))
        rows = triton_rows.tiles_of(part, shape, plan.padded)
        found.append(
            triton_sums.joints(table, rows, part, shape, plan.padded, plan.chunk, plan.lanes, plan.components)
        )
    return found[0] if len(found) == 1 else torch.cat(found)


def plan_for(batch: Batch, k: int) -> Plan:
    interpreted = batch.device.type != "cuda"
    lanes = 4096 if interpreted else 128
    components = 8
    while components < min(k, 64 if interpreted else 128):
        components *= 2
    padded = -(-batch.n // 256) * 256
    if interpreted:
        return Plan(padded, 256, 1, 2 if batch.n < 50 else 1, max(64, padded // 2), lanes, components)
    processors = multiprocessors(batch.device)
    double = batch.dtype == torch.float64
    block, warps = (128, 4) if double else (256, 4)
    if padded <= processors * 256:
        block, warps = 64, 2 if double else 1
    programs = padded // block
    shares = max(1, min(k // 4, -(-processors * 4 // programs)))
    groups = lanes // components
    blocks = -(-k // components)
    chunks = max(1, min(padded // (8 * groups), processors * 3 * 4 // blocks))
    chunk = -(-padded // chunks)
    chunk = -(-chunk // groups) * groups
    return Plan(padded, block, warps, shares, chunk, lanes, components)


@cache
def multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count
