"""Writing files so that a crash or a full disk never harms what was there, and reading safetensors without trust."""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

TRIES = 100  # to lock a file that its owners unlink
VERSION = 2  # of our safetensors files; 1, of xdeconv 0.1, had no list of features


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Write beside the target, force to disk, rename: the old file is intact until the new one is whole."""
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with open(partial, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    except OSError as problem:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        reason = f"could not write {target}: {problem.strerror}. What was there is unchanged"
        raise OSError(problem.errno, reason) from problem
    _sync_folder(target.parent)


@contextlib.contextmanager
def locked(path: str | os.PathLike[str]) -> Iterator[None]:
    """Hold a file against other writers, in this process or another; a process that dies lets go of it."""
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        yield
        return
    target = Path(path)
    beside = target.with_name(f".{target.name}.lock")
    handle = _locked_handle(beside, target, fcntl)
    try:
        yield
    finally:
        beside.unlink(missing_ok=True)
        os.close(handle)


def _locked_handle(beside: Path, target: Path, fcntl: Any) -> int:
    """The lock file, open and locked; once more when the one before unlinked it in between."""
    for _ in range(TRIES):
        try:
            handle = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as problem:
            raise OSError(problem.errno, f"could not write {target}: {problem.strerror}") from problem
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(handle), beside.stat()):
                return handle
        except FileNotFoundError:  # unlinked just now
            pass
        except BlockingIOError as problem:
            os.close(handle)
            reason = f"another fit is writing {target}: wait for it, or choose another name"
            raise BlockingIOError(problem.errno, reason) from problem
        except OSError as problem:
            os.close(handle)
            raise OSError(problem.errno, f"could not lock {beside}: {problem.strerror}") from problem
        os.close(handle)
    raise OSError(f"could not lock {beside}: it is another file at every look")


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def save_tensors(
    path: str | os.PathLike[str], kind: str, tensors: Mapping[str, np.ndarray], facts: Any, features: Sequence[str] = ()
) -> None:
    """A safetensors file of one kind: arrays, and facts as JSON in its header.

    ``features`` names what a reader must know, or else misunderstand the file.
    """
    from safetensors.numpy import save

    text = json.dumps(facts, sort_keys=True)
    arrays = {name: np.array(array, order="C") for name, array in tensors.items()}
    needed = json.dumps(sorted(features))
    metadata = {"format": f"xdeconv {kind}", "version": str(VERSION), "facts": text, "features": needed,
                "checksum": _checksum(arrays, text + needed)}  # fmt: skip
    write_atomically(path, save(arrays, metadata=metadata))


def _checksum(arrays: Mapping[str, np.ndarray], facts: str) -> str:
    """A number that changes with any bit of any array, of its name, type and shape, and of the facts."""
    total = zlib.crc32(facts.encode())
    for name in sorted(arrays):
        array = arrays[name]
        total = zlib.crc32(f"{name} {array.dtype} {array.shape}".encode(), total)
        total = zlib.crc32(np.ascontiguousarray(array).tobytes(), total)
    return f"{total:08x}"


def load_tensors(
    path: str | os.PathLike[str], kind: str, features: Collection[str] = ()
) -> tuple[dict[str, np.ndarray], Any]:
    """The arrays and facts of a file that :func:`save_tensors` wrote; a clear ValueError for any other file.

    A file of a later version, or with a feature that is not among ``features``, is refused by name.
    """
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != f"xdeconv {kind}":
                found = metadata.get("format", "not named")
                raise ValueError(f"{path} is not an xdeconv {kind} (its format is {found!r})")
            needed = _features(path, metadata)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            text = metadata.get("facts", "null")
            if metadata.get("checksum") != _checksum(tensors, text + needed):
                raise ValueError(f"{path} is damaged: its numbers are not those that were written")
            _refuse_unknown(path, json.loads(needed or "[]"), features)
            return tensors, json.loads(text)
    except (SafetensorError, json.JSONDecodeError, KeyError, TypeError, OverflowError, RecursionError) as problem:
        raise ValueError(f"{path} is truncated, damaged or not an xdeconv {kind}: {problem}") from problem


def _features(path: str | os.PathLike[str], metadata: Mapping[str, str]) -> str:
    """The features that a file names, as it says them; a file of a later version is refused."""
    version = metadata.get("version", "")
    if not version.isdecimal() or not 1 <= int(version) <= VERSION:
        raise ValueError(f"{path} has version {version!r} of the format, and this xdeconv reads 1 to {VERSION}: "
                         "install a later xdeconv")  # fmt: skip
    return metadata["features"] if int(version) > 1 else ""


def _refuse_unknown(path: str | os.PathLike[str], named: Sequence[str], known: Collection[str]) -> None:
    """Refuse a file with features that this version would misunderstand."""
    unknown = [str(name) for name in named if name not in known]
    if unknown:
        raise ValueError(f"{path} has {', '.join(unknown)}, which this version of xdeconv does not know: "
                         "install a later xdeconv")  # fmt: skip
