"""How much memory this process may still take, whoever limits it."""

from __future__ import annotations

import errno
from pathlib import Path

from .machine import physical_memory

SHORT = (
    "can't start new thread",
    "Failed to launch worker thread",
    "can't allocate memory",
    "Cannot allocate memory",
    "not enough memory",
)


def short(problem: BaseException) -> bool:
    """Whether something failed for want of memory, by whatever name a library calls that."""
    if isinstance(problem, MemoryError) or (isinstance(problem, OSError) and problem.errno == errno.ENOMEM):
        return True
    return isinstance(problem, Exception) and any(words in str(problem) for words in SHORT)


def free() -> int:
    """Bytes that this process may still take: of the machine, of its control group, of its own limit."""
    rooms = [_machine(), *_groups(), _own_limit()]
    return max(0, min(room for room in rooms if room is not None))


def _machine() -> int:
    for line in _lines(Path("/proc/meminfo")):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return physical_memory()


def _groups(root: Path = Path("/sys/fs/cgroup")) -> list[int]:
    """Room in this process's control group and in each that holds it; version 2."""
    lines = _lines(Path("/proc/self/cgroup"))
    own = next((line.partition("::")[2] for line in lines if line.startswith("0::")), "/")
    groups = []
    for folder in [root / own.strip("/"), *(root / own.strip("/")).parents]:
        limit, used = _lines(folder / "memory.max"), _lines(folder / "memory.current")
        if limit and used and limit[0].isdigit():
            groups.append(int(limit[0]) - int(used[0]) + _cached(folder))
        if folder == root:
            break
    return groups


def _cached(folder: Path) -> int:
    """File pages that the group can drop at once."""
    lines = (line.split() for line in _lines(folder / "memory.stat"))
    return sum(int(words[1]) for words in lines if words[0] == "inactive_file")


def _own_limit() -> int | None:
    """Room below this process's own limit of address space or data."""
    try:
        import resource
    except ImportError:
        return None
    sizes = _lines(Path("/proc/self/statm"))
    limits = {0: resource.RLIMIT_AS, 5: resource.RLIMIT_DATA}  # by the place of what is taken, in pages
    rooms = [
        most - int(sizes[0].split()[place]) * resource.getpagesize()
        for place, limit in limits.items()
        if sizes and (most := resource.getrlimit(limit)[0]) != resource.RLIM_INFINITY
    ]
    return min(rooms, default=None)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
