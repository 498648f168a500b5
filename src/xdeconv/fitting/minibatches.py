"""One update of a minibatch method: plainly, or on a GPU as a replayed CUDA graph, so that small batches are fast."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ..kernels.options import Options
from ..kernels.stats import Stats
from ..methods import Method, State
from ..rows.batch import Batch
from ..system.ranks import joined, sum_over_ranks
from .beside.carried import Carried
from .beside.selected import Selected
from .full_pass import sums_of

log = logging.getLogger("xdeconv")
WARM_UPS = 3
NOTHING = Carried()
ROW_TENSORS = ("x", "noise", "projection", "weight", "label", "log_prior", "background")


@dataclass
class Steps:
    """Updates one after the other, and the weight and log-likelihood of the rows that they saw.

    ``held`` says whether the rows are in memory; with a recording, batches of its size are replayed.
    """

    method: Method
    total: float
    options: Options
    device: torch.device
    held: bool = False
    carried: Carried = NOTHING
    selected: Selected | None = None
    recording: Recording | None = None
    rows: Tensor = field(init=False)
    loglik: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.rows = torch.zeros((), dtype=torch.float64, device=self.device)
        self.loglik = torch.zeros((), dtype=torch.float64, device=self.device)

    def begin(self) -> None:
        """Start counting rows and likelihood from zero."""
        self.rows.zero_()
        self.loglik.zero_()

    def step(self, state: Any, batch: Batch) -> Any:
        """The state after one batch, which is replayed if it can be."""
        if self.recording is None or batch.n != self.recording.size:
            return self.computed(state, batch)
        try:
            return self.recording.replayed(self, state, batch)
        except CannotRecord as why:
            log.warning("steps cannot be recorded as a CUDA graph (%s): each is launched by itself, more slowly", why)
            state, self.recording = self.recording.state, None
            return self.computed(state, batch)

    def computed(self, state: Any, batch: Batch) -> Any:
        """The state after one batch, computed plainly."""
        return self._updated(state, self._sums(state, batch))

    def _sums(self, state: Any, batch: Batch) -> Stats:
        now = self.carried.at(state.numbers())
        told = now.tails, now.inflation, self.selected
        return sums_of(batch, state.parameters(), self.options, state.factors, *told)

    def run(self, state: Any, batches: Iterator[Batch]) -> Iterator[Any]:
        """The states after one batch and the next; of several ranks, a batch is the union of theirs."""
        if not joined():
            for one in batches:
                state = self.step(state, one)
                yield state
            return
        while True:
            batch: Batch | None = next(batches, None)
            k, d = state.parameters().means.shape
            extra, heavy, whole = len(state.numbers()), self.carried.tails is not None, state.factors is None
            unseen = self.selected is not None
            nothing = torch.zeros(Stats.size(k, d, extra, heavy, unseen), dtype=torch.float64, device=self.device)
            # other ranks may have more: this one adds nothing to theirs
            stats = Stats(nothing, k, d, whole, extra, heavy, unseen) if batch is None else self._sums(state, batch)
            told = sum_over_ranks(torch.cat([stats.packed, stats.packed.new_full((1,), float(batch is not None))]))
            if told[-1] == 0:
                return
            state = self._updated(state, replace(stats, packed=told[:-1]))
            yield state

    def _updated(self, state: Any, stats: Stats) -> Any:
        self.rows += stats.seen
        self.loglik += stats.loglik
        return self.method.update(state, stats, self.total)


class CannotRecord(RuntimeError):
    """An update does what a CUDA graph cannot: it waits for the host, or copies from it."""


@dataclass
class Recording:
    """An update of batches of one size on a GPU, whose launches are recorded once and replayed."""

    size: int
    graph: torch.cuda.CUDAGraph | None = None
    batch: Batch | None = None
    state: Any = None

    def replayed(self, steps: Steps, state: Any, batch: Batch) -> Any:
        """The state after one batch of the size."""
        if self.graph is None:
            self._record(steps, state, batch)
        elif state is not self.state:
            _overwrite(self.state, state)
        assert self.graph is not None
        assert self.batch is not None
        for name in ROW_TENSORS:
            values = getattr(batch, name)
            if values is not None and values is not getattr(self.batch, name):
                getattr(self.batch, name).copy_(values)
        self.graph.replay()
        return self.state

    def _record(self, steps: Steps, state: Any, batch: Batch) -> None:
        """Warm up on a side stream, undo what that changed, and record one update."""
        changes: dict[str, Any] = {name: t.clone() for name in ROW_TENSORS if (t := getattr(batch, name)) is not None}
        self.batch = replace(batch, **changes)
        self.state = steps.method.owned(state)
        kept = {name: tensor.detach().clone() for name, tensor in self.state.tensors().items()}
        counted = steps.rows.clone(), steps.loglik.clone()
        side = side_stream(steps.device)
        side.wait_stream(torch.cuda.current_stream(steps.device))
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                self._update(steps)
        torch.cuda.current_stream(steps.device).wait_stream(side)
        try:
            graph = self._captured(steps)
        finally:
            for name, tensor in self.state.tensors().items():
                tensor.copy_(kept[name]) if name in kept else tensor.zero_()
            steps.rows.copy_(counted[0])
            steps.loglik.copy_(counted[1])
        self.graph = graph

    def _captured(self, steps: Steps) -> torch.cuda.CUDAGraph:
        """One update as a graph."""
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self._update(steps)
        except RuntimeError as problem:
            raise CannotRecord(str(problem).partition("\n")[0]) from problem
        return graph

    def _update(self, steps: Steps) -> None:
        assert self.batch is not None
        _overwrite(self.state, steps.computed(self.state, self.batch))


def make_steps(
    method: Method, total: float, options: Options, device: torch.device, size: int | None, held: bool,
    carried: Carried = NOTHING, selected: Selected | None = None,
) -> Steps:  # fmt: skip
    """Replayed steps where they help and can be recorded: rows held on one GPU, a method whose update can be."""
    plain = device.type != "cuda" or size is None or not held or joined() or not method.recordable
    plain = plain or carried != NOTHING or selected is not None
    recording = None if plain or size is None else Recording(size)
    return Steps(method, total, options, device, held, carried, selected, recording)


@cache
def side_stream(device: torch.device) -> torch.cuda.Stream:
    """The one stream of a device that updates warm up on: cuBLAS keeps 32 MiB for every stream that it has seen."""
    return torch.cuda.Stream(device)


def _overwrite(state: State, values: State) -> None:
    """Write another state's numbers into a state's own memory; zero where an optimiser has not begun."""
    source = values.tensors()
    with torch.no_grad():
        for name, tensor in state.tensors().items():
            if name not in source:
                tensor.zero_()
            elif tensor.data_ptr() != source[name].data_ptr():
                tensor.copy_(source[name])
