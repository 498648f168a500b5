"""Writing files so that a crash or a full disk never harms what was there, and reading safetensors without trust."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from .checksums import checksum
from .machine import sync_folder

LONGEST = 255  # bytes that a name may have
VERSION = 2  # of the files that save_tensors writes; 1, of xdeconv 0.1, had no list of features


MALFORMED = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What facts of a file that have not the shape they should have raise, wherever they are taken apart."""


class LaterVersion(ValueError):
    """A file from a later version of xdeconv, or one that uses what this version lacks."""


class DamagedFile(ValueError):
    """A file that does not hold what was written."""


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], durable: bool = True) -> Iterator[Path]:
    """A file to write beside the target: it takes the target's name when all went well, and else is removed.

    The old file is intact until the new one is whole and, where it is to be ``durable``, on disk; no interrupt leaves
    a partial file. Of several writers, in processes or threads, the last one stays.
    """
    target = Path(path)
    own = f".{os.getpid()}.{threading.get_ident()}.partial"
    partial = target.with_name(f".{target.name}{own}" if len(os.fsencode(target.name + own)) < LONGEST else own)
    try:
        yield partial
        with _clearly(target):
            if durable:
                _sync(partial)
            os.replace(partial, target)
    except OSError as problem:  # a name that nobody gave says nothing
        if partial.name not in str(problem):
            raise
        reason = os.strerror(problem.errno) if problem.errno else str(problem).replace(partial.name, target.name)
        raise OSError(problem.errno, f"could not write {target}: {reason}. What was there is unchanged") from problem
    finally:
        _remove(partial)
    if durable:
        sync_folder(target.parent)


@contextlib.contextmanager
def _clearly(target: Path) -> Iterator[None]:
    """A failure to write says of which file, and that the old one is as it was."""
    try:
        yield
    except OSError as problem:
        reason = f"could not write {target}: {problem.strerror}. What was there is unchanged"
        raise OSError(problem.errno, reason) from problem


def _sync(path: Path) -> None:
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def _remove(partial: Path) -> None:
    """Remove what is left of a write, even when an interrupt arrives meanwhile."""
    try:
        partial.unlink(missing_ok=True)
    except OSError:
        return
    except KeyboardInterrupt:
        partial.unlink(missing_ok=True)
        raise


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Write beside the target, force to disk, rename: the old file is intact until the new one is whole."""
    with replacing(path) as partial, _clearly(Path(path)), open(partial, "wb") as file:
        file.write(content)


@contextlib.contextmanager
def locked(path: str | os.PathLike[str], what: str = "fit") -> Iterator[None]:
    """Hold a file or a folder against other writers, here or in another process; a process that dies lets go of it."""
    target = Path(path)
    beside = target.with_name(f".{target.name}.lock")
    if not target.parent.is_dir():  # which a lock would create
        raise FileNotFoundError(errno.ENOENT, f"could not write {target}: there is no folder {target.parent}")
    lock = FileLock(beside)
    try:
        lock.acquire(timeout=0.2, poll_interval=0.02)  # long enough to look again where the last owner just unlinked it
    except Timeout as problem:
        reason = f"another {what} is writing {target}: wait for it, or choose another name"
        raise BlockingIOError(errno.EWOULDBLOCK, reason) from problem
    except OSError as problem:
        raise OSError(problem.errno, f"could not write {target}: {problem.strerror}") from problem
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # a system on which an open file cannot be removed
            beside.unlink(missing_ok=True)  # while it is held: who opened it meanwhile sees that it has no name
        lock.release()


# Checksums


def _checksum(arrays: Mapping[str, np.ndarray], facts: str) -> str:
    """A number that changes with any bit of any array, of its name, type and shape, and of the facts."""
    named = sorted(arrays.items())
    parts = [part for name, array in named for part in (f"{name} {array.dtype} {array.shape}", array)]
    return f"{checksum(facts, *parts):08x}"


# Versions


def refuse_later_version(written: Any, known: int, path: str | os.PathLike[str]) -> int:
    """The version that a file says it has, refused when it is later than the one that is known, or not a number.

    Parameters
    ----------
    found : Any
        What the file says: a whole number, or the text of one.
    known : int
        The latest version that this xdeconv reads.
    path : str or os.PathLike
        The file, for the message.

    Returns
    -------
    int
        The version, from 1 to ``known``.

    Examples
    --------
    >>> refuse_later_version("1", 2, "model.safetensors")
    1
    >>> refuse_later_version(3, 2, "m.safetensors")
    Traceback (most recent call last):
    ...
    xdeconv.system.files.LaterVersion: m.safetensors was written by a later xdeconv (version 3, known up to 2): upgrade
    """
    version = written if isinstance(written, int) and not isinstance(written, bool) else _number(written)
    if version is None or version < 1:
        raise DamagedFile(f"{path} is damaged: {written!r} is not a version of a format")
    if version > known:
        raise LaterVersion(f"{path} was written by a later xdeconv (version {version}, known up to {known}): upgrade")
    return version


def _number(text: Any) -> int | None:
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 10 else None


def refuse_unknown_features(features: Any, known: Collection[str], path: str | os.PathLike[str]) -> None:
    """Refuse a file that uses features which this xdeconv lacks, by their names.

    >>> refuse_unknown_features(["background"], ["background", "selection"], "model.safetensors")
    >>> refuse_unknown_features(["warp"], ["background"], "model.safetensors")
    Traceback (most recent call last):
    ...
    xdeconv.system.files.LaterVersion: model.safetensors uses warp, which this xdeconv does not have: upgrade
    """
    if not isinstance(features, (list, tuple)) or not all(isinstance(name, str) for name in features):
        raise DamagedFile(f"{path} is damaged: {features!r} is not a list of features")
    lacking = [name for name in features if name not in known]
    if lacking:
        raise LaterVersion(f"{path} uses {', '.join(lacking)}, which this xdeconv does not have: upgrade")


# Safetensors


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
                written = metadata.get("format", "not named")
                raise ValueError(f"{path} is not an xdeconv {kind} (its format is {written!r})")
            version = refuse_later_version(metadata.get("version"), VERSION, path)
            needed = metadata["features"] if version > 1 else ""
            tensors = _tensors(file, f"{path} is damaged")
            text = metadata.get("facts", "null")
            if metadata.get("checksum") != _checksum(tensors, text + needed):
                raise DamagedFile(f"{path} is damaged: its numbers are not those that were written")
            refuse_unknown_features(json.loads(needed or "[]"), features, path)
            return tensors, json.loads(text)
    except (SafetensorError, json.JSONDecodeError, KeyError, TypeError, OverflowError, RecursionError) as problem:
        raise DamagedFile(f"{path} is truncated, damaged or not an xdeconv {kind}: {problem}") from problem


def _tensors(file: Any, damaged: str) -> dict[str, np.ndarray]:
    """All arrays; one of a type that NumPy lacks, or of a shape that no array has, was not written by xdeconv."""
    try:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except MALFORMED as problem:
        raise DamagedFile(f"{damaged}: {problem}") from problem


def kind_of(path: str | os.PathLike[str]) -> str | None:
    """The kind of an xdeconv file of tensors, such as model or checkpoint; None for anything else."""
    from safetensors import SafetensorError, safe_open

    if not os.path.isfile(path):  # whoever opens a pipe waits for somebody to write
        return None
    try:
        with safe_open(path, framework="numpy") as file:
            name = (file.metadata() or {}).get("format", "")
    except (SafetensorError, OSError, ValueError, TypeError, RecursionError):
        return None
    return name.removeprefix("xdeconv ") if name.startswith("xdeconv ") else None


def refuse_foreign(path: str | os.PathLike[str], kind: str) -> None:
    """Refuse to write over a file that is there and is not an xdeconv file of this kind."""
    if os.path.lexists(path) and kind_of(path) != kind:
        raise FileExistsError(f"{path} is there and is not an xdeconv {kind}: choose another name")
