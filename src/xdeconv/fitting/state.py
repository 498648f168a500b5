"""FitState: everything that a fit knows between two passes, which is exactly what a checkpoint holds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..mixture._mixture import Mixture
from ..mixture.inflated import Inflated
from ..mixture.tails import StudentT
from ..system.files import MALFORMED, DamagedFile, load_tensors, save_tensors
from ..system.ranks import agreed
from .history import Epoch

NAMED = 5  # differences that an error lists
KINDS = {"settings": dict, "restart": int, "epoch": int, "dtype": str, "best_score": float, "finished": bool,
         "notes": list}  # fmt: skip


@dataclass(frozen=True)
class Candidate:
    """A restart's mixture, in the frame, that competes to be the fit's."""

    mixture: Mixture
    score: float
    converged: bool
    restart: int


@dataclass(frozen=True)
class FitState:
    """A fit after some epochs.

    settings    what must be the same for a checkpoint to be of use
    learner     the method's own tensors
    dtype       the number type that the fit has come to
    rescue      w of a prior that the fit had to add, in the frame
    best        the mixture with the best validation of this restart, where stopping early was asked for
    winner      the best of earlier restarts
    proposal    the mixture, in the frame, that chances to be kept are drawn from, where they are
    drawing     how often they were drawn, how many per row, and the epoch at which they were last
    """

    settings: dict[str, Any]
    restart: int
    epoch: int
    dtype: str
    learner: dict[str, Tensor]
    history: tuple[Epoch, ...] = ()
    notes: tuple[str, ...] = ()
    rescue: tuple[float, ...] | None = None
    best: Mixture | None = None
    best_score: float = -np.inf
    winner: Candidate | None = None
    finished: bool = False
    proposal: Mixture | None = None
    drawing: tuple[int, int, int] = (0, 0, 0)

    def past(self) -> list[Epoch]:
        """The epochs of this restart."""
        return [record for record in self.history if record.restart == self.restart]

    def noted(self, *notes: str) -> FitState:
        """The same with notes added that are not there yet."""
        return replace(self, notes=(*self.notes, *(note for note in notes if note not in self.notes)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it; the old file stays whole until the new one is."""
        arrays = {f"state.{name}": tensor.detach().cpu().numpy() for name, tensor in self.learner.items()}
        winner = None if self.winner is None else self.winner.mixture
        kept = {"best": self.best, "winner": winner, "proposal": self.proposal}
        for name, mixture in kept.items():
            if mixture is not None:
                arrays |= {f"{name}.{part}": getattr(mixture, part) for part in ("shares", "means", "covariances")}
                if mixture.tails is not None:
                    arrays[f"{name}.tails"] = np.array([mixture.tails.nu, mixture.tails.fitted], dtype=np.float64)
        plain = ("settings", "restart", "epoch", "dtype", "notes", "rescue", "best_score", "finished", "drawing")
        facts = {name: getattr(self, name) for name in plain} | {"history": [asdict(e) for e in self.history]}
        wider = {name: mixture.inflation for name, mixture in kept.items() if mixture is not None}
        facts["inflation"] = {name: made.as_json() for name, made in wider.items() if made is not None}
        if self.winner is not None:
            facts["winner"] = {name: getattr(self.winner, name) for name in ("score", "converged", "restart")}
        save_tensors(path, "checkpoint", arrays, facts)


def load_state(path: str | os.PathLike[str]) -> FitState:
    """The state that was saved; a clear ValueError for any other file."""
    arrays, facts = load_tensors(path, "checkpoint")
    try:
        learner = {name[6:]: torch.from_numpy(a.copy()) for name, a in arrays.items() if name.startswith("state.")}
        history = tuple(Epoch(**record) for record in facts["history"])
        best, winner, proposal = (_mixture(arrays, name, facts) for name in ("best", "winner", "proposal"))
        wrong = [name for name, kind in KINDS.items() if not isinstance(facts[name], kind)]
        wrong += [f"history {i}" for i, record in enumerate(history) if not isinstance(record.loglik, float)]
        if wrong:
            raise ValueError(", ".join(wrong))
        known = {field.name for field in fields(FitState)} - {"learner", "history", "best", "winner", "proposal"}
        plain = {"drawing": (0, 0, 0)} | {name: facts[name] for name in known if name in facts or name != "drawing"}
        plain |= {name: None if plain[name] is None else tuple(plain[name]) for name in ("notes", "rescue", "drawing")}
        candidate = None if winner is None else Candidate(winner, **facts["winner"])
        return FitState(**plain, learner=learner, history=history, best=best, winner=candidate, proposal=proposal)
    except MALFORMED as problem:
        raise DamagedFile(f"{path} is damaged: {problem}") from problem


def refuse_other_learner(path: str | os.PathLike[str], saved: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    """Refuse tensors that are not the method's; an optimiser's own come only with its first step."""
    for name, tensor in wanted.items():
        if name not in saved or saved[name].shape != tensor.shape or saved[name].dtype != tensor.dtype:
            raise DamagedFile(f"{path} is damaged: its state has no {name} of shape {tuple(tensor.shape)}")


def refuse_other_settings(path: str | os.PathLike[str], saved: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Resuming must mean the same fit of the same rows: name what differs."""
    differ = list(_differences(saved, wanted, ""))
    if differ:
        shown = "; ".join(differ[:NAMED]) + (f"; and {len(differ) - NAMED} more" if len(differ) > NAMED else "")
        raise ValueError(f"{path} belongs to another fit ({shown}): use the same settings and rows, or another path")


def refuse_other_words(words: dict[str, Any], device: torch.device) -> None:
    """Ranks must be called alike before one asks anything of all; of what is not a word or a number, by its type."""
    kinds = (str, int, float, type(None))
    refuse_other_ranks({n: v if isinstance(v, kinds) else type(v).__name__ for n, v in words.items()}, device)


def refuse_other_ranks(settings: dict[str, Any], device: torch.device) -> None:
    """Ranks share the rows, so that all must hold the same ones; copies of a file may differ in their times."""
    if not agreed(_timeless(settings), device):
        raise ValueError("the ranks hold different rows or have different settings: give all of them the same data")


def _differences(saved: Any, wanted: Any, name: str) -> Iterator[str]:
    """What is not the same in two settings, word by word; of a file, just that it changed."""
    if saved == wanted:
        return
    if isinstance(saved, dict) and isinstance(wanted, dict):
        if "file" in wanted and saved.get("file") == wanted["file"]:
            yield f"{wanted['file']} has changed since"
            return
        for word in dict.fromkeys([*wanted, *saved]):
            yield from _differences(saved.get(word), wanted.get(word), f"{name} {word}".lstrip())
    elif isinstance(saved, list) and isinstance(wanted, list) and len(saved) == len(wanted):
        for one, other in zip(saved, wanted, strict=True):
            yield from _differences(one, other, name)
    else:
        yield f"{name}: {_short(saved)} there, {_short(wanted)} here"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _timeless(value: Any) -> Any:
    """Settings without the times of files."""
    if isinstance(value, dict):
        return {name: _timeless(item) for name, item in value.items() if name != "time" or "file" not in value}
    return [_timeless(item) for item in value] if isinstance(value, (list, tuple)) else value


def _mixture(arrays: dict[str, np.ndarray], name: str, facts: dict[str, Any]) -> Mixture | None:
    if f"{name}.shares" not in arrays:
        return None
    parts = (torch.from_numpy(arrays[f"{name}.{part}"].copy()) for part in ("shares", "means", "covariances"))
    mixture, tails = Mixture.from_tensors(*parts), arrays.get(f"{name}.tails")
    wider = facts.get("inflation", {}).get(name)
    mixture = mixture if wider is None else mixture.with_(inflation=Inflated.from_json(wider))
    return mixture if tails is None else mixture.with_(tails=StudentT(float(tails[0]), bool(tails[1])))
