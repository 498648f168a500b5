"""Checkpoints: everything a fit needs to go on to the same bits, in one safetensors file."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..mixture._mixture import Mixture
from ..system.files import load_tensors, save_tensors
from .history import Epoch

KINDS = {"settings": dict, "restart": int, "epoch": int, "dtype": str, "best_score": float, "winner_score": float,
         "winner_converged": bool, "finished": bool, "winner_restart": int, "notes": list}  # fmt: skip


@dataclass(frozen=True)
class Checkpoint:
    """A fit after some epochs: its settings, the method's state, the best mixture so far and the history."""

    settings: dict[str, Any]
    restart: int
    epoch: int
    dtype: str
    state: dict[str, Tensor]
    best: Mixture | None
    best_score: float
    winner: Mixture | None
    winner_score: float
    winner_converged: bool
    history: tuple[Epoch, ...]
    finished: bool
    rescue: list[float] | None = None
    winner_restart: int = 0
    notes: list[str] = field(default_factory=list)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it; the old one stays whole until the new one is."""
        arrays = {f"state.{name}": tensor.cpu().numpy() for name, tensor in self.state.items()}
        for name in ("best", "winner"):
            mixture = getattr(self, name)
            if mixture is not None:
                for part in ("weights", "means", "covariances"):
                    arrays[f"{name}.{part}"] = getattr(mixture, part)
        numbers = (
            "settings",
            "restart",
            "epoch",
            "dtype",
            "best_score",
            "winner_score",
            "winner_converged",
            "winner_restart",
            "finished",
            "rescue",
            "notes",
        )
        facts = {name: getattr(self, name) for name in numbers} | {"history": [asdict(e) for e in self.history]}
        save_tensors(path, "checkpoint", arrays, facts)


def load_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """The checkpoint that was saved; a clear ValueError for any other file."""
    arrays, facts = load_tensors(path, "checkpoint")
    try:
        state = {name[6:]: torch.from_numpy(a.copy()) for name, a in arrays.items() if name.startswith("state.")}
        history = tuple(Epoch(**record) for record in facts.pop("history"))
        mixtures = {name: _mixture(arrays, name) for name in ("best", "winner")}
        found = Checkpoint(state=state, history=history, **mixtures, **facts)  # type: ignore[arg-type]
    except (TypeError, KeyError, AttributeError) as problem:
        raise ValueError(f"{path} is damaged: {problem}") from problem
    wrong = [name for name, kind in KINDS.items() if not isinstance(getattr(found, name), kind)]
    wrong += [f"history {i}" for i, record in enumerate(history) if not isinstance(record.loglik, float)]
    if wrong:
        raise ValueError(f"{path} is damaged: {', '.join(wrong)}")
    return found


def refuse_other_state(path: str | os.PathLike[str], found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    """Refuse a state whose tensors are not those of the fit; an optimiser's own come only with its first step."""
    for name, tensor in wanted.items():
        if name not in found or found[name].shape != tensor.shape or found[name].dtype != tensor.dtype:
            raise ValueError(f"{path} is damaged: its state has no {name} of shape {tuple(tensor.shape)}")


def refuse_other_settings(path: str | os.PathLike[str], found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Resuming must mean the same fit: name every setting that differs."""
    differ = [f"{name}: {found.get(name)!r} there, {value!r} here" for name, value in wanted.items()
              if found.get(name) != value]  # fmt: skip
    if differ:
        raise ValueError(f"{path} belongs to another fit ({'; '.join(differ)}): use the same settings or another path")


def _mixture(arrays: dict[str, np.ndarray], name: str) -> Mixture | None:
    if f"{name}.weights" not in arrays:
        return None
    weights, means, covariances = (arrays[f"{name}.{part}"] for part in ("weights", "means", "covariances"))
    return Mixture(weights, means, covariances)
