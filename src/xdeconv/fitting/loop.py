"""The only loop: epochs, searches, validation, checkpoints, restarts, and what happens when float32 is not enough."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from ..kernels.stats import Stats
from ..methods import State
from ..methods.prior import Prior
from ..mixture._mixture import Mixture
from ..rows.batch import Batch
from ..rows.data import ArraySource, Source, sample_rows
from ..rows.resident import Cache, Place, ResidentSource, placed
from ..search.moves import Found, Search
from ..system.ranks import from_first, rank, world
from .checkpoint import Checkpoint, load_checkpoint, refuse_other_settings, refuse_other_state
from .full_pass import score_of, stats_of, summed, weight_of
from .history import Callback, Epoch, columns
from .initial import SAMPLE_ROWS, fit_gaussian, latent_rows, moments, start_mixture
from .minibatches import Steps, make_steps
from .plan import Plan, converged, search_due
from .rescue import REMEDY, NumericalTrouble, refuse_fall, refuse_trouble, rescued

log = logging.getLogger("xdeconv")


@dataclass(frozen=True)
class FitResult:
    """What a fit found: the mixture, its mean log-likelihood on the training rows, and how and from which restart."""

    mixture: Mixture
    history: tuple[Epoch, ...]
    converged: bool
    loglik: float
    validation: float | None = None
    interrupted: bool = False
    notes: tuple[str, ...] = ()
    restart: int = 0


@dataclass
class Loop:
    """One call of fit(): what all epochs and restarts share, and what they have found so far."""

    plan: Plan
    raw: Source
    raw_held_out: Source | None
    callbacks: Sequence[Callback]
    history: list[Epoch] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    winner: Mixture | None = None
    winner_score: float = -np.inf
    winner_converged: bool = False
    winner_restart: int = 0
    saved_at: float = -np.inf
    latest: Checkpoint | None = None
    best: Mixture | None = None
    best_score: float = -np.inf
    steps: Steps | None = None

    def run(self) -> FitResult:
        """All restarts; Ctrl-C ends with the best so far."""
        self.shift, self.scale = from_first(self._units(), self.plan.device)
        self.method = self.plan.method.standardized(self.scale.tolist())
        self.dtype, self.cache = self.plan.dtype, self.plan.cache
        self._prepare()
        self._report_rows()
        found = self._checkpoint_found()
        self.earlier = found.history[-1].seconds if found and found.history else 0.0
        interrupted = False
        try:
            for restart in range(found.restart if found else 0, self.plan.restarts):
                self._restart(restart, found if found and found.restart == restart else None)
        except KeyboardInterrupt:
            interrupted = True
            self._on_interrupt()
        assert self.winner is not None
        return self._result(interrupted)

    # Preparation

    def _units(self) -> tuple[Tensor, Tensor]:
        """Shift and scale (d,) of each latent coordinate; without standardisation rows are centred where they must."""
        ones = torch.ones(self.raw.dim).double()
        if not self.plan.standardize and self.plan.dtype == torch.float64:
            return 0 * ones, ones
        sample = sample_rows(self.raw, SAMPLE_ROWS, self.plan.seed)
        if sample.projection is None:
            shift, scale = moments(*latent_rows(sample, None))
            return shift.cpu(), scale.cpu() if self.plan.standardize else ones
        if not self.plan.standardize:
            return 0 * ones, ones
        gaussian = fit_gaussian(sample)
        spread = np.sqrt(np.maximum(np.diagonal(gaussian.covariances[0]), 1e-300))
        return torch.from_numpy(gaussian.means[0].copy()), torch.from_numpy(spread)

    def _prepare(self) -> None:
        self.train, self.steps = self.raw, None  # what was kept makes room
        self.held_out: Source | None = None
        where = Place(self.shift, self.scale, self.plan.device, self.dtype, self.cache, rank(), world())
        train, said = placed(self.raw, where)
        if said:
            log.info(said)
            self.notes.append(said)
        size = self.plan.batch_rows
        self.train = train.arranged(None if size is None else -(-size // world()), self.plan.seed)
        if self.raw_held_out is not None:
            self.held_out = placed(self.raw_held_out, replace(where, cache=None))[0].arranged(None, 0)
        self.total: float | None = None

    def _report_rows(self) -> None:
        """Count the weight of all rows, and say how many have nothing observed."""
        self.total, empty = self._summed(self.train, weight_of, 2).tolist()
        if self.total <= 0:
            raise ValueError("there are no rows with weight above 0 to fit")
        if empty:
            self._note(
                f"{empty:.0f} of {self.train.rows} rows have nothing observed: they say nothing about the mixture"
            )

    def _start(self, restart: int) -> Mixture:
        seed = self.plan.seed + 7919 * restart
        if self.plan.given is not None and restart == 0:
            return self.plan.given.transformed((-self.shift / self.scale).numpy(), (1 / self.scale).numpy())
        parted = isinstance(self.train, ResidentSource) and world() > 1  # a start needs the rows of all ranks
        source = self.train.origin if parted else self.train  # type: ignore[attr-defined]
        found = start_mixture(source, self.plan.components, self.plan.start, seed, self.scale)
        return from_first(found, self.plan.device)

    # One restart

    def _restart(self, restart: int, found: Checkpoint | None) -> None:
        if found is None:
            self._forget_trouble()
            state: State = self.method.init(self._start(restart), self.plan.device)
            self.best, self.best_score, first = None, -np.inf, 0
        else:
            state = self.method.init(self._start(restart), self.plan.device)
            refuse_other_state(self.plan.checkpoint or "", found.state, state.tensors())
            state = self.method.restore(state, found.state)
            self.best, self.best_score, first = found.best, found.best_score, found.epoch
        self.current = state
        past = [record for record in self.history if record.restart == restart]
        epoch, done = first, converged(self.plan, past)
        while epoch < self.plan.epochs and not done:
            state, record = self._epoch(state, restart, epoch, past)
            self.current = state
            past.append(record)
            self.history.append(record)
            if record.validation is not None and record.validation > self.best_score:
                self.best, self.best_score = self.method.mixture(state), record.validation
            epoch += 1
            done = converged(self.plan, past)
            finished = done or epoch == self.plan.epochs
            self._checkpoint(restart, epoch, state, finished)
            for callback in self.callbacks:
                callback(record)
        self._compete(done, restart)

    def _forget_trouble(self) -> None:
        """A new restart begins as the first one did, whatever another one had to change."""
        if self._rescue() is not None:
            self.method, self.steps = self.plan.method.standardized(self.scale.tolist()), None
        if self.dtype != self.plan.dtype:
            self._change_to(self.plan.dtype, self.plan.cache)

    def _compete(self, done: bool, restart: int) -> None:
        """Keep the better of this restart's mixture and the best of those before, by validation where there is any."""
        mixture, score = self.best or self.method.mixture(self.current), self.best_score
        if self.best is None and self.held_out is not None:
            score = self._score(mixture.tensors(self.plan.device), self.held_out)
        elif self.best is None and self.plan.restarts > 1:
            score = self._score(mixture.tensors(self.plan.device), self.train)
        if self.winner is None or score > self.winner_score:
            self.winner, self.winner_score, self.winner_converged = mixture, score, done
            self.winner_restart = restart

    def _epoch(self, state: State, restart: int, epoch: int, past: list[Epoch]) -> tuple[State, Epoch]:
        """One pass, repeated in float64 and then with a small prior where it fails; what was done is said."""
        moved: int | None = None
        remarks: list[str] = []
        if search_due(self.plan, past):
            state, moved, remarks = self._search(state, restart, epoch)
            past = []
        before = {name: tensor.clone() for name, tensor in state.tensors().items()}
        remarks += [f"{moved} moves"] if moved else []
        while True:
            try:
                after, loglik = self._pass(state, epoch)
                self._refuse_trouble(after, loglik, past)
                validation = self._validation(after)
                break
            except NumericalTrouble as trouble:
                state = self.method.restore(state, before)
                state, remark = self._recover(trouble, state, epoch)
                remarks.append(remark)
        seconds = self.earlier + time.monotonic() - self.began
        return after, Epoch(epoch, seconds, loglik, validation, restart, moved, "; ".join(remarks))

    def _validation(self, state: State) -> float | None:
        """The score of the rows held out, if there are any."""
        if self.held_out is None:
            return None
        found = self._score(state.parameters(), self.held_out)
        if not np.isfinite(found):
            raise NumericalTrouble("the likelihood of the rows held out is not finite")
        return found

    def _refuse_trouble(self, after: State, loglik: float, past: list[Epoch]) -> None:
        single = self.dtype == torch.float32
        refuse_trouble(after, loglik, single)
        if single and past and self.plan.ascends():
            refuse_fall(past[-1].loglik, loglik)

    def _recover(self, trouble: NumericalTrouble, state: State, epoch: int) -> tuple[State, str]:
        """What the failed epoch is repeated with, said as well; raise when nothing is left to change."""
        if self.dtype == torch.float32:
            self._change_to(torch.float64, None)  # rows take twice the room: they are kept where they fit
            note = f"{trouble} in float32: epoch {epoch} was repeated in float64, and the fit goes on in it"
        else:
            helped = rescued(self.method, state)
            if helped is None:
                raise NumericalTrouble(f"epoch {epoch}: {trouble}, in float64. {REMEDY}") from trouble
            (self.method, state), self.steps = helped, None
            w = [value * float(s) ** 2 for value, s in zip(self._rescue() or (), self.scale, strict=True)]
            shown = ", ".join(f"{value:.3g}" for value in w)
            note = f"{trouble} at epoch {epoch}: the fit goes on with a small prior, w = ({shown}). {REMEDY}"
        self._note(note)
        return state, note

    def _change_to(self, dtype: torch.dtype, cache: Cache | None) -> None:
        """Go on in another number type, with rows kept where there is room for it."""
        self.dtype, self.cache = dtype, cache
        self._prepare()
        self.total = float(self._summed(self.train, weight_of, 2)[0])

    def _search(self, state: State, restart: int, epoch: int) -> tuple[State, int, list[str]]:
        """Look for better optima on a pool of rows; the state from there, how many components moved, and what was done.

        A state without a finite likelihood, where no move can be judged, is changed first as a failed pass would be.
        """
        remarks: list[str] = []
        found = self._found(state, restart, epoch)
        while not found.sound:
            state, remark = self._recover(NumericalTrouble("the likelihood is not finite"), state, epoch)
            remarks.append(remark)
            found = self._found(state, restart, epoch)
        return self.method.moved(state, found.parameters) if found.moved else state, found.moved, remarks

    def _found(self, state: State, restart: int, epoch: int) -> Found:
        """What a search finds, the same on all ranks."""
        assert self.plan.moves is not None
        assert self.total is not None
        rng = np.random.default_rng([self.plan.seed, restart, epoch])
        size = max(self.plan.moves.pool_rows, 8 * self.plan.components)
        pool = sample_rows(self.train, size, int(rng.integers(1 << 31)))
        prior = getattr(self.method, "prior", None)
        if prior is not None:
            prior = prior.scaled(float(pool.total_weight()) / self.total)
        found = Search(pool, self.plan.moves, rng, prior, self.plan.options).run(state.parameters())
        return from_first(found.on("cpu"), self.plan.device).on(self.plan.device)

    def _pass(self, state: State, epoch: int) -> tuple[State, float]:
        """The state after one pass, and the mean log-likelihood that the pass met."""
        assert self.total is not None
        if self.plan.batch_rows is None:
            k, d = self.plan.components, self.raw.dim
            work = partial(stats_of, parameters=state.parameters(), options=self.plan.options)
            whole = Stats(self._summed(self.train, work, Stats.size(k, d)), k, d)
            return self.method.update(state, whole, self.total), float(whole.loglik / whole.rows)
        if self.steps is None or self.steps.total != self.total:
            held = isinstance(self.train, (ArraySource, ResidentSource))
            size = self.plan.batch_rows
            self.steps = make_steps(self.method, self.total, self.plan.options, self.plan.device, size, held)
        self.steps.begin()
        for after in self.steps.run(state, self._part(self.train, epoch)):
            self.current = state = after
        return state, float(self.steps.loglik / self.steps.rows)

    def _summed(self, source: Source, function: Callable[[Batch], Tensor], size: int) -> Tensor:
        """A sum over all rows of a source."""
        return summed(source.arranged(None, 0), function, size, self.plan.device)

    def _part(self, source: Source, epoch: int) -> Iterator[Batch]:
        """This process's batches of an epoch."""
        return source.batches(epoch, rank=rank(), world=world())

    def _score(self, parameters: tuple[Tensor, Tensor, Tensor], source: Source) -> float:
        """Mean log-likelihood per unit of weight over a prepared source."""
        work = partial(score_of, parameters=parameters, options=self.plan.options)
        total, weight = self._summed(source, work, 2).tolist()
        return total / weight

    # Checkpoints and results

    def _checkpoint_found(self) -> Checkpoint | None:
        if not self.plan.resume:
            return None
        if self.plan.checkpoint is None:
            raise ValueError("resume=True needs checkpoint=, the file to go on from")
        there = rank() == 0 and os.path.exists(self.plan.checkpoint)
        found = from_first(load_checkpoint(self.plan.checkpoint) if there else None, self.plan.device)
        if found is None:
            self._note(f"there is no checkpoint {self.plan.checkpoint} yet: starting afresh")
            return None
        refuse_other_settings(self.plan.checkpoint, found.settings, self.plan.settings(self.raw))
        self.history = list(found.history)
        self.notes = [*found.notes, *(note for note in self.notes if note not in found.notes)]
        self.winner, self.winner_score = found.winner, found.winner_score
        self.winner_converged, self.winner_restart = found.winner_converged, found.winner_restart
        if found.dtype == "float64" and self.dtype != torch.float64:
            self._change_to(torch.float64, None)
        if found.rescue is not None:
            self.method = replace(self.method, prior=Prior(w=tuple(found.rescue)))  # type: ignore[type-var]
        return found

    def _checkpoint(self, restart: int, epoch: int, state: State, finished: bool) -> None:
        if self.plan.checkpoint is None or rank() > 0:
            return
        tensors = {name: tensor.detach().clone() for name, tensor in state.tensors().items()}
        self.latest = Checkpoint(
            self.plan.settings(self.raw), restart, epoch, str(self.dtype).removeprefix("torch."), tensors, self.best,
            self.best_score, self.winner, self.winner_score, self.winner_converged, tuple(self.history), finished,
            self._rescue(), self.winner_restart, list(self.notes),
        )  # fmt: skip
        if finished or time.monotonic() - self.saved_at > self.plan.checkpoint_seconds:
            self.latest.save(self.plan.checkpoint)
            self.saved_at = time.monotonic()

    def _rescue(self) -> list[float] | None:
        """The w of a prior that the fit had to add."""
        prior = getattr(self.method, "prior", None)
        return list(prior.w) if prior is not None and getattr(self.plan.method, "prior", None) is None else None

    def _on_interrupt(self) -> None:
        if not hasattr(self, "current"):
            raise KeyboardInterrupt
        if world() > 1:  # no rank may wait for another now
            if self.latest is not None and self.plan.checkpoint is not None:
                self.latest.save(self.plan.checkpoint)
            raise KeyboardInterrupt
        self._compete(done=False, restart=self.history[-1].restart if self.history else 0)
        if self.latest is not None and self.plan.checkpoint is not None:
            self.latest.save(self.plan.checkpoint)
            self._note(f"interrupted after {len(self.history)} epochs: resume=True goes on from {self.plan.checkpoint}")
        else:
            self._note(f"interrupted after {len(self.history)} epochs: this is the best mixture so far")

    def _result(self, interrupted: bool) -> FitResult:
        assert self.winner is not None
        loglik = self._score(self.winner.tensors(self.plan.device), self.train)
        validation = None
        if self.held_out is not None:
            validation = self._score(self.winner.tensors(self.plan.device), self.held_out)
        labels = self.plan.labels or (self.plan.given.labels if self.plan.given else None)
        units = self.plan.units or (self.plan.given.units if self.plan.given else None)
        meta = {"fit": self.plan.settings(self.raw), "epochs": len(self.history), "loglik": loglik,
                "validation": validation, "notes": self.notes, "history": columns(self.history)}  # fmt: skip
        mixture = self.winner.transformed(self.shift.numpy(), self.scale.numpy())
        mixture = mixture.with_(labels=labels, units=units, meta=meta)
        notes = tuple(self.notes)
        return FitResult(
            mixture, tuple(self.history), self.winner_converged, loglik, validation, interrupted, notes,
            self.winner_restart,
        )  # fmt: skip

    def _note(self, text: str) -> None:
        if rank() == 0:
            log.warning(text)
        self.notes.append(text)
