"""CUDA C compiled at run time by NVRTC, which torch brings, and launched on torch's stream: through ctypes alone."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

log = logging.getLogger("xdeconv")
Argument = Tensor | int
Kernel = Callable[[int, int, Sequence[Argument]], None]  # of blocks, bytes of shared memory of each, and arguments
LARGEST_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
WARP = 32
KERNELS = ("joint", "moments")  # of each file
TASKS = 4  # of a warp: more of them balance better, and leave more sums to add
RESERVED = 1024  # bytes of shared memory that each block takes beside its own


class CannotCompile(RuntimeError):
    """NVRTC or the driver is not there, or does not know the device."""


@cache
def kernel(
    source: str, name: str, constants: tuple[tuple[str, str], ...], device: torch.device, threads: int = WARP
) -> Kernel:
    """A kernel of so many threads per block from a file of this folder, with constants defined, for a device.

    Arguments are tensors, for their addresses, and whole numbers, in the order of the kernel.
    """
    driver, function = _library("cuda.so.1"), ctypes.c_void_p()
    _check(driver.cuModuleGetFunction(ctypes.byref(function), _modules(source, constants, device)[name], name.encode()))
    shared: list[int] = [0]

    def launch(blocks: int, bytes_shared: int, arguments: Sequence[Argument]) -> None:
        if bytes_shared > shared[0]:
            _check(driver.cuFuncSetAttribute(function, LARGEST_SHARED, bytes_shared))
            shared[0] = bytes_shared
        values = [_value(argument) for argument in arguments]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.cast(ctypes.byref(v), ctypes.c_void_p) for v in values))
        stream = ctypes.c_void_p(torch.cuda.current_stream(device).cuda_stream)
        _check(driver.cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, bytes_shared, stream, pointers, None))

    return launch


@cache
def compiles(device: torch.device) -> bool:
    """Whether kernels can be compiled for a device, tried once."""
    if device.type != "cuda":
        return False
    try:
        kernel("registers.cu", "joint", (("REAL", "float"), ("FULL", "0"), ("MASKED", "0"), ("DIM", "2")), device)
    except CannotCompile as why:
        log.info("CUDA C cannot be compiled (%s): more than ten dimensions run by Triton, more slowly", why)
        return False
    return True


@dataclass(frozen=True)
class Memory:
    """Shared memory in bytes, of a block and of a multiprocessor, and how many of these there are."""

    block: int
    processor: int
    processors: int

    def warps(self, shared: int) -> int:
        """How many warps with so much shared memory run on a multiprocessor at a time."""
        return min(32, self.processor // (shared + RESERVED)) if shared <= self.block else 0


@cache
def capability_of(device: torch.device) -> tuple[int, int]:
    """What a device can compute, as NVIDIA counts it."""
    return torch.cuda.get_device_capability(device)


@cache
def memory_of(device: torch.device) -> Memory:
    """What a device has."""
    properties = torch.cuda.get_device_properties(device)
    return Memory(
        properties.shared_memory_per_block_optin,  # type: ignore[attr-defined]
        properties.shared_memory_per_multiprocessor,
        properties.multi_processor_count,
    )


def _value(argument: Argument) -> Any:
    """What a kernel gets: an address, or a number of 64 bits."""
    return ctypes.c_void_p(argument.data_ptr()) if isinstance(argument, Tensor) else ctypes.c_longlong(argument)


@cache
def _modules(source: str, constants: tuple[tuple[str, str], ...], device: torch.device) -> dict[str, ctypes.c_void_p]:
    """The kernels of a file in the context of the device, compiled side by side."""
    capability = capability_of(device)
    options = [f"--gpu-architecture=sm_{capability[0]}{capability[1]}", "--std=c++17"]
    options += [f"-D{name}={value}" for name, value in constants]
    with ThreadPoolExecutor(len(KERNELS)) as pool:
        binaries = pool.map(lambda name: compiled(text_of(source), [*options, f"-D{name.upper()}"]), KERNELS)
        return {name: _loaded(binary, device) for name, binary in zip(KERNELS, binaries, strict=True)}


def _loaded(binary: bytes, device: torch.device) -> ctypes.c_void_p:
    """Machine code in the context of the device."""
    module = ctypes.c_void_p()
    with torch.cuda.device(device):
        torch.cuda.synchronize()  # makes a context where there is none yet
        _check(_library("cuda.so.1").cuModuleLoadData(ctypes.byref(module), binary))
    return module


def text_of(source: str) -> str:
    """A file of this folder behind what all of them share."""
    return "".join(Path(__file__).with_name(name).read_text() for name in ("warp.cu", source))


def compiled(source: str, options: list[str]) -> bytes:
    """Machine code of CUDA C; what the compiler says where it fails."""
    nvrtc, program, size = _nvrtc(), ctypes.c_void_p(), ctypes.c_size_t()
    _check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"xdeconv.cu", 0, None, None))
    try:
        words = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        if nvrtc.nvrtcCompileProgram(program, len(options), words):
            nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            nvrtc.nvrtcGetProgramLog(program, log)
            raise CannotCompile(log.value.decode())
        _check(nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)))
        binary = ctypes.create_string_buffer(size.value)
        _check(nvrtc.nvrtcGetCUBIN(program, binary))
        return binary.raw
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _nvrtc() -> ctypes.CDLL:
    """NVRTC of the CUDA that torch was built with."""
    if torch.version.cuda is None:
        raise CannotCompile("torch has no CUDA")
    return _library(f"nvrtc.so.{torch.version.cuda.split('.')[0]}")


@cache
def _library(name: str) -> ctypes.CDLL:
    """A library as the system finds it, or as NVIDIA's Python packages hold it beside torch."""
    packages = Path(torch.__file__).parents[1] / "nvidia"
    for candidate in (f"lib{name}", *map(str, sorted(packages.glob(f"*/lib/lib{name}")))):
        try:
            return ctypes.CDLL(candidate)
        except OSError:
            continue
    raise CannotCompile(f"lib{name} is not there")


def _check(code: int) -> None:
    if code:
        raise CannotCompile(f"CUDA error {code}")
