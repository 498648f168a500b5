"""The loops over tiles, components and rows, compiled once for each kind of data and kept on disk."""

from __future__ import annotations

import logging
import threading
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit, types

from . import numba_lanes, numba_pairs
from .numba_pairs import Kind, exp_block, log_block, log_joint_block, max_block, sums_block

log = logging.getLogger("xdeconv")

TILE = 128  # rows whose numbers stay in the nearest cache while all components pass
FLUSH = 4096  # rows whose sums are added up in the kernel's type; a multiple of TILE
LOG_PROB, LOG_JOINT, SUMS = range(3)


@cache
def kernel(kind: Kind) -> Callable[..., None]:
    """The compiled function of a kind of data; see ``chunk`` below for what it takes."""
    name = f"d = {kind.d}, {kind.noise} noise, float{kind.bits}"
    notice = threading.Timer(1.0, log.info, ("compiling the CPU kernel for %s (once per machine)", name))
    notice.daemon = True
    notice.start()
    try:
        return _compile(kind.code, kind.bits // 8, kind.width, kind.row_numbers, kind.component_numbers, kind.sums,
                        kind.p, kind.noise_numbers, _fingerprint())  # fmt: skip
    finally:
        notice.cancel()


def scratch_numbers(kind: Kind, k: int) -> int:
    """Numbers of scratch memory that one thread needs."""
    return TILE * kind.row_numbers + k * TILE + k * kind.sums * kind.width + 5 * TILE


def _fingerprint() -> int:
    """Changes with the files whose instructions end up inside the compiled function: Numba's cache cannot know them."""
    files = (numba_lanes.__file__, numba_pairs.__file__)
    return zlib.crc32(b"".join(Path(file).read_bytes() for file in files))


def _signature(size: int) -> Any:
    number = types.float32 if size == 4 else types.float64
    columns = types.Array(number, 2, "A")
    return types.void(
        types.Array(number, 2, "C"), columns, columns, columns, types.Array(number, 1, "A"), columns,
        types.Array(types.int64, 1, "A"), types.float64[::1], types.int64, types.int64, types.int64,
        types.Array(number, 1, "C"), types.Array(number, 1, "C"), types.Array(number, 2, "C"),
        types.float64[:, ::1], types.float64[::1],
    )  # fmt: skip


def _compile(
    code: str, size: int, W: int, row_numbers: int, component_numbers: int, sum_numbers: int,
    p: int, noise_numbers: int, fingerprint: int,
) -> Callable[..., None]:  # fmt: skip
    projection_start = p + noise_numbers

    @njit(_signature(size), nogil=True, cache=True, error_model="numpy")
    def chunk(
        components, x, noise, projection, weight, prior, label, unit, want, start, stop,
        scratch, log_prob, log_joint, sums, totals,
    ):  # type: ignore[no-untyped-def]  # fmt: skip
        """Rows start to stop: log_prob (n,), log_joint (n, k), or sums (k, ...) and totals (rows, loglik)."""
        if fingerprint == 0:
            return
        k = len(components)
        tile = scratch[: TILE * row_numbers]
        joint = scratch[tile.size : tile.size + k * TILE]
        lanes = scratch[tile.size + joint.size : tile.size + joint.size + k * sum_numbers * W]
        rest = scratch[tile.size + joint.size + lanes.size :]
        largest, total, norm, share = (
            rest[:TILE],
            rest[TILE : 2 * TILE],
            rest[2 * TILE : 3 * TILE],
            rest[3 * TILE : 4 * TILE],
        )
        constant = rest[4 * TILE : 5 * TILE]
        component_at, tile_at, joint_at, lanes_at = (
            components.ctypes.data, tile.ctypes.data, joint.ctypes.data, lanes.ctypes.data,
        )  # fmt: skip
        largest_at, total_at, norm_at, share_at = (
            largest.ctypes.data, total.ctypes.data, norm.ctypes.data, share.ctypes.data,
        )  # fmt: skip
        lanes[:] = 0
        for first in range(start, stop, TILE):
            rows = min(TILE, stop - first)
            block = -(-rows // W) * W
            for i in range(block):
                row = first + min(i, rows - 1)
                group = tile[i // W * W * row_numbers + i % W :]
                sum_of_units = 0.0
                for a in range(p):
                    group[a * W] = x[a, row]
                    if x[a, row] == x[a, row]:
                        sum_of_units += unit[a]
                for a in range(noise_numbers):
                    group[(p + a) * W] = noise[a, row]
                for a in range(len(projection)):
                    group[(projection_start + a) * W] = projection[a, row]
                constant[i] = sum_of_units
                share[i] = 0 if i >= rows else weight[row] if weight.size else 1
                largest[i] = -np.inf
                total[i] = 0

            for j in range(k):
                for v in range(0, block, W):
                    log_joint_block(
                        code, tile_at + v * row_numbers * size, component_at + j * component_numbers * size,
                        joint_at + (j * TILE + v) * size,
                    )  # fmt: skip
            if prior.size:
                for i in range(rows):
                    line = prior[label[first + i] if label.size else first + i]
                    for j in range(k):
                        joint[j * TILE + i] += line[j]
            if want == LOG_JOINT:
                for i in range(rows):
                    for j in range(k):
                        log_joint[first + i, j] = joint[j * TILE + i] - constant[i]
                continue

            for j in range(k):
                for v in range(0, block, W):
                    max_block(code, joint_at + (j * TILE + v) * size, largest_at + v * size)
            for i in range(block):
                if largest[i] == -np.inf:
                    largest[i] = 0
            for j in range(k):
                for v in range(0, block, W):
                    exp_block(code, joint_at + (j * TILE + v) * size, largest_at + v * size, total_at + v * size)
            for v in range(0, block, W):
                log_block(code, total_at + v * size, norm_at + v * size)
            if want == LOG_PROB:
                for i in range(rows):
                    log_prob[first + i] = largest[i] + norm[i] - constant[i]
                continue

            for i in range(rows):
                totals[0] += share[i]
                totals[1] += share[i] * (np.float64(largest[i]) + norm[i] - constant[i])
            for i in range(block):
                share[i] /= total[i]
            for j in range(k):
                for v in range(0, block, W):
                    sums_block(
                        code, tile_at + v * row_numbers * size, component_at + j * component_numbers * size,
                        joint_at + (j * TILE + v) * size, share_at + v * size, lanes_at + j * sum_numbers * W * size,
                    )  # fmt: skip
            if (first + TILE - start) % FLUSH == 0 or first + TILE >= stop:
                for j in range(k):
                    for s in range(sum_numbers):
                        for lane in range(W):
                            sums[j, s] += lanes[(j * sum_numbers + s) * W + lane]
                            lanes[(j * sum_numbers + s) * W + lane] = 0

    return chunk
