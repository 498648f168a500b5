"""Who sums which tile of G: tiles need from one product per pair to as many as there are blocks."""

from __future__ import annotations

from functools import cache
from itertools import islice

import torch
from torch import Tensor

from .compiling import WARP

Slot = tuple[int, int, int]  # a tile, its first pair, and the step to the next one


@cache
def shared_out(blocks: int, pairs: int, kept: int) -> tuple[Slot, ...]:
    """The slots (32 kept) of a warp's lanes, those of one round after those of another, so that rounds are short.

    Long sums are parted among several slots by their pairs.
    """
    tiles = [(blocks - I, t) for t, I in enumerate(I for I in range(blocks) for _ in range(I + 1))]
    longest = pairs * blocks
    choices = (_parted(tiles, pairs, bound) for bound in range(1, longest + 1))
    fitting = (slots for slots in choices if len(slots) <= WARP * kept)
    best = min(islice(fitting, 4 * blocks * pairs), key=lambda slots: sum(work for work, _ in slots[::WARP]))
    idle = [(0, pairs, 1)] * (WARP * kept - len(best))
    return tuple([slot for _, slot in best] + idle)


def _parted(tiles: list[tuple[int, int]], pairs: int, bound: int) -> list[tuple[int, Slot]]:
    """Slots with their products, the longest first; none has more than the bound where one pair does not."""
    slots = []
    for products, t in tiles:
        parts = min(pairs, -(-pairs // max(1, bound // products)))
        slots += [(-(-(pairs - part) // parts) * products, (t, part, parts)) for part in range(parts)]
    return sorted(slots, reverse=True)


@cache
def slots_on(blocks: int, pairs: int, kept: int, device: torch.device) -> Tensor:
    """The slots (32 kept, 3) as kernels read them."""
    return torch.tensor(shared_out(blocks, pairs, kept), dtype=torch.int32, device=device)


@cache
def of_tiles(blocks: int, pairs: int, kept: int, device: torch.device) -> Tensor:
    """(tiles, 32 kept): 1 where a slot holds a part of a tile."""
    slots = torch.tensor(shared_out(blocks, pairs, kept), device=device)
    tiles = torch.arange(blocks * (blocks + 1) // 2, device=device)
    return ((slots[:, 0] == tiles[:, None]) & (slots[:, 1] < pairs)).double()
