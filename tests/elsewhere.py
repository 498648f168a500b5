"""A GPU of pretence: tensors on the CPU that say they are on a GPU, and refuse to meet those that do not.

It also refuses what adds in the order in which threads come, as index_add_ does on a GPU: other bits every time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map

GPU = torch.device("cuda", 0)
UNORDERED = ("index_add", "scatter_add", "scatter_reduce", "index_reduce")


class Elsewhere(Tensor):
    """A tensor of the GPU of pretence; ``inner`` has its numbers."""

    inner: Tensor

    device = property(lambda self: GPU)
    is_cuda = property(lambda self: True)

    @staticmethod
    def __new__(cls, inner: Tensor) -> Elsewhere:
        where = {"strides": inner.stride(), "storage_offset": inner.storage_offset()}
        return Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, **where)

    def __init__(self, inner: Tensor) -> None:
        self.inner = inner

    def __repr__(self) -> str:
        return f"Elsewhere({self.inner!r})"

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return dispatched(function, args, kwargs or {})


class Machine(TorchFunctionMode):
    """Calls that make or move tensors to a GPU, or to the CPU, meet the GPU of pretence."""

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if function is Tensor.cpu:
            return _inner(args[0])
        if function is Tensor.tolist:
            return _inner(args[0]).tolist()
        if function is Tensor.to:
            return moved(args[0], args[1:], kwargs)
        if function is torch.nn.functional.one_hot:  # which makes tensors of its own, inside
            return Elsewhere(function(_inner(args[0]), *args[1:]))
        if _is_gpu(kwargs.get("device")):
            made = function(*args, **kwargs | {"device": "cpu"})
            return made if isinstance(made, Elsewhere) else Elsewhere(made)
        return function(*args, **kwargs)


def moved(tensor: Tensor, args: tuple, kwargs: dict) -> Tensor:
    """Tensor.to in all its forms."""
    if args and isinstance(args[0], Tensor):
        args = (args[0].device, args[0].dtype)
    devices = [value for value in (*args, kwargs.get("device")) if isinstance(value, (str, torch.device))]
    inner = _inner(tensor).to(
        *(a for a in args if a not in devices), **{k: v for k, v in kwargs.items() if k != "device"}
    )
    there = _is_gpu(devices[0]) if devices else isinstance(tensor, Elsewhere)
    return Elsewhere(inner) if there else inner


def _is_gpu(device: Any) -> bool:
    return device is not None and torch.device(device).type == "cuda"


def dispatched(function: Any, args: tuple, kwargs: dict) -> Any:
    """One operation of torch: on the tensors' numbers, if all of them are in one place."""
    indexed = any(name in str(function) for name in ("aten.index.Tensor", "aten.index_put"))
    met = (args[0], args[2:]) if indexed else (args, kwargs)  # indices may be on the CPU
    tensors = [t for t in tree_flatten(met)[0] if isinstance(t, Tensor)]
    there = any(isinstance(t, Elsewhere) for t in tensors)
    copies = "_to_copy" in str(function) or "copy_" in str(function)
    if there and not copies and any(not isinstance(t, Elsewhere) and t.ndim > 0 for t in tensors):
        raise RuntimeError(f"{function}: expected all tensors to be on the same device, found cuda:0 and cpu")
    if there and any(name in str(function) for name in UNORDERED):
        raise RuntimeError(f"{function}: gives other bits every time on a GPU")
    device = kwargs.get("device")
    target = there if device is None else torch.device(device).type == "cuda"
    if device is not None:
        kwargs = kwargs | {"device": torch.device("cpu")}
    plain_args, plain = tree_map(_inner, (args, kwargs))
    out = function(*plain_args, **plain)
    if "_local_scalar_dense" in str(function):
        return out
    if str(function).split(".")[1].endswith("_") and isinstance(args[0], Tensor):
        return args[0]  # in place
    return tree_map(lambda t: Elsewhere(t) if isinstance(t, Tensor) else t, out) if target else out


def _inner(value: Any) -> Any:
    return value.inner if isinstance(value, Elsewhere) else value
