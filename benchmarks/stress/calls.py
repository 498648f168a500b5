"""Commands called in this process, and what is wrong with how they ended."""

from __future__ import annotations

import contextlib
import io
from typing import Any


def called(words: list[str]) -> tuple[Any, str, str]:
    """Exit code, standard error, and what escaped, of a command in this process."""
    from xdeconv.cli.app import run

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            run(words)
        except SystemExit as ended:
            return ended.code, err.getvalue(), ""
        except BaseException as problem:
            return None, err.getvalue(), repr(problem)


def defect(code: Any, err: str, problem: str) -> str | None:
    """What is wrong with how a command ended."""
    if problem:
        return f"escaped: {problem}"
    if code not in (0, 1, 2, 3, 4):
        return f"exit code {code}"
    said = [line for line in err.splitlines() if line.startswith(("xdeconv: ", "Error: "))]
    if code and len(said) != 1:
        return f"{len(said)} lines of error"
    return "a traceback" if "Traceback" in err else None
