"""Processes of torch.distributed: who this one is, sums over all of them, and what the first one says.

Ranks run the same code on disjoint rows. Sums are all-reduced in float64, so that every rank sees the same bits and
decides alike; whatever is drawn or searched for is taken from rank 0.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch import distributed as dist

from .machine import cores

T = TypeVar("T")


class RankLost(OSError):
    """Another rank ended or did not answer in time."""


def joined() -> bool:
    """Whether there is a process group."""
    return dist.is_available() and dist.is_initialized()


def rank() -> int:
    """The number of this process among all; 0 when there is only one."""
    return dist.get_rank() if joined() else 0


def world() -> int:
    """How many processes there are."""
    return dist.get_world_size() if joined() else 1


def sum_over_ranks(values: Tensor) -> Tensor:
    """The sum of a tensor over all ranks, the same bits on each; itself when there is only one."""
    if not joined():
        return values
    total = values.clone()
    _answered(lambda: dist.all_reduce(total))
    return total


def from_first(value: T, device: torch.device) -> T:
    """What rank 0 has for a value."""
    if not joined():
        return value
    box: list[Any] = [value]
    _answered(lambda: dist.broadcast_object_list(box, src=0, device=device if dist.get_backend() == "nccl" else None))
    return box[0]


def made_by_first(make: Callable[[], T], device: torch.device) -> T:
    """What rank 0 makes, which alone does so; what it raises instead is raised on every rank."""
    if not joined():
        return make()
    value, problem = None, None
    if rank() == 0:
        try:
            value = make()
        except Exception as raised:
            problem = raised
    value, problem = from_first((value, problem), device)
    if problem is not None:
        raise problem
    return value  # type: ignore[return-value]


def from_all(make: Callable[[], T]) -> list[T]:
    """What each rank makes, in the order of ranks; what one of them raises instead is raised on every rank."""
    if not joined():
        return [make()]
    mine: tuple[T | None, Exception | None]
    try:
        mine = (make(), None)
    except Exception as raised:
        mine = (None, raised)
    boxes: list[Any] = [None] * world()
    _answered(lambda: dist.all_gather_object(boxes, mine))
    for _, problem in boxes:
        if problem is not None:
            raise problem
    return [value for value, _ in boxes]


def agreed(value: Any, device: torch.device) -> bool:
    """Whether all ranks have the same value; the same answer on each, so that all stop or none."""
    if not joined():
        return True
    differs = torch.tensor([float(from_first(value, device) != value)], device=device, dtype=torch.float64)
    return float(sum_over_ranks(differs)) == 0


def _answered(call: Callable[[], Any]) -> None:
    """Make a call that needs all ranks; say it clearly when one does not answer."""
    try:
        call()
    except RuntimeError as problem:
        reason = str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__
        raise RankLost(
            f"rank {rank()} of {world()} stops: another rank has ended or not answered in time ({reason}). "
            "Run the same again with --resume, or checkpoint=xd.Checkpoint(path, resume=True): it resumes from there"
        ) from problem


def started_by_torchrun() -> bool:
    """Whether the environment names a rank, as torchrun and its like set it."""
    return dist.is_available() and "RANK" in os.environ and "WORLD_SIZE" in os.environ


def restarted() -> bool:
    """Whether torchrun has started this process again after a failure."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


@contextmanager
def process_group(device: str | None, timeout: float) -> Iterator[str | None]:
    """Join the ranks that the environment names, and leave them at the end; the device of this rank.

    GPUs talk by NCCL, CPUs by gloo. A rank that waits for another longer than ``timeout`` seconds stops.
    """
    if not started_by_torchrun() or joined():
        yield device
        return
    kind = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if kind == "cuda":
        local = int(os.environ.get("LOCAL_RANK", "0"))
        if local >= torch.cuda.device_count():
            raise ValueError(f"local rank {local} has no GPU: this host has {torch.cuda.device_count()}")
        kind = f"cuda:{local}"
        torch.cuda.set_device(local)
    else:
        _share_cores()
    backend = "nccl" if kind.startswith("cuda") else "gloo"
    _answered(lambda: _join(backend, timedelta(seconds=timeout)))
    yield kind
    dist.destroy_process_group()  # only when all went well: else it would wait for ranks that are gone


def _join(backend: str, timeout: timedelta) -> None:
    """Enter the group. The store of torchrun outlives restarts: each has its own names in it."""
    store, own, size = next(dist.rendezvous("env://", timeout=timeout))
    store = dist.PrefixStore(f"restart {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    dist.init_process_group(backend, store=store, rank=own, world_size=size, timeout=timeout)


def _share_cores() -> None:
    """The ranks of one host share its cores."""
    torch.set_num_threads(max(1, cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))
