"""Which machine and which commit a number belongs to."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import torch


def about() -> dict[str, object]:
    """Processor, cores, GPU, versions and commit."""
    return {
        "processor": _processor(), "cores": len(os.sched_getaffinity(0)),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(), "torch": torch.__version__, "commit": _commit(),
    }  # fmt: skip


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _commit() -> str:
    if os.environ.get("XDECONV_COMMIT"):
        return os.environ["XDECONV_COMMIT"]
    try:
        found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
        return found.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
