"""benchmarks/RESULTS.md: each command writes its own section and leaves the others as they are."""

from __future__ import annotations

import re
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "RESULTS.md"
HEAD = "# Results\n\nWritten by the commands in this folder; each section names its command, machine and commit.\n"


def write_section(title: str, body: str) -> None:
    """Put a section into RESULTS.md, in the place of an earlier one of the same title."""
    text = RESULTS.read_text() if RESULTS.exists() else HEAD
    section = f"## {title}\n\n{body.strip()}\n"
    pattern = re.compile(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", re.DOTALL | re.MULTILINE)
    if pattern.search(text):
        text = pattern.sub(lambda _: section + "\n", text)
    else:
        text = text.rstrip() + "\n\n" + section
    RESULTS.write_text(text.rstrip() + "\n")


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def describe(machine: dict[str, object]) -> str:
    """One line about a machine."""
    gpu = f"{machine['gpu']}, " if machine.get("gpu") else ""
    return (
        f"{gpu}{machine['processor']}, {machine['cores']} cores, Python {machine['python']}, "
        f"torch {machine['torch']}, commit {machine['commit']}."
    )
