"""Devices and number types, by the words that users have for them."""

from __future__ import annotations

from typing import Any

import torch


def chosen_device(device: Any) -> torch.device:
    """The device of a word, refused where there is none; the GPU by default, where there is one."""
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind = str(device).partition(":")[0]
    if kind not in ("cpu", "cuda"):
        raise ValueError(f"device must be cpu or cuda, got {device!r}")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device={device!r} was asked for and torch finds no CUDA device here")
    return torch.device(device)


def number_type(dtype: torch.dtype | str | None, device: torch.device) -> torch.dtype:
    """float32 or float64, by name or as torch has it; by default float32 on a GPU and float64 elsewhere."""
    if dtype is None:
        return torch.float32 if device.type == "cuda" else torch.float64
    known = {"float32": torch.float32, "float64": torch.float64}
    name = str(dtype).removeprefix("torch.")
    if name not in known:
        raise ValueError(f"dtype must be float32 or float64, got {dtype!r}")
    return known[name]
