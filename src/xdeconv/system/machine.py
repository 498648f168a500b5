"""What the operating system offers: the one place that asks whether it has a call that others lack."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

UNKNOWN_MEMORY = 1 << 62


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def physical_memory() -> int:
    """Bytes of memory that the machine has; more than any machine where the system does not say."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else UNKNOWN_MEMORY


def boot() -> str | None:
    """A name for this start of the system, which no other start has; None where the system gives none."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip() or None
    except OSError:
        return None


def after_fork_in_child(work: Callable[[], object]) -> None:
    """Have some work done first in every child that this process forks, on systems that can fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=work)


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Force a folder's names to disk, on systems where a folder can be opened."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def stop_signals() -> tuple[int, ...]:
    """The signals that ask a process to end: Ctrl-C, kill, and a terminal that goes away."""
    names = ("SIGINT", "SIGTERM", "SIGHUP")
    return tuple(int(getattr(signal, name)) for name in names if hasattr(signal, name))
