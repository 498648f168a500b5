"""The code on a page: cells, Python blocks, commands, and blocks that say on the page why they are not run."""

from __future__ import annotations

import glob
import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from typer.testing import CliRunner

from xdeconv import cli

FENCE = re.compile(r"^```(\{code-cell\}|\{code-block\}|\w+)?([^\n]*)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
OPTION = re.compile(r"^:(\w+):\s*(.*)\n", flags=re.MULTILINE)
COMMANDS = ("xdeconv", "python", "pip", "make", "torchrun", "sbatch")
INDENTED = re.compile(rf"^ {{4,}}(?:\$ )?(?:{'|'.join(COMMANDS)}) ", flags=re.MULTILINE)
NOT_RUN = "Not run here: "


@dataclass(frozen=True)
class Block:
    """A fenced block: python, sh, or something that is not code; and why it is not run, if it is not."""

    kind: str
    text: str
    not_run: str | None = None


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    return [_block(*found.groups(default="")) for found in FENCE.finditer(page)]


def _block(directive: str, rest: str, body: str) -> Block:
    if not directive.startswith("{"):
        return Block(directive, body)
    options = dict(OPTION.findall(body))
    code = OPTION.sub("", body)
    if directive == "{code-cell}":
        return Block("python", code)
    caption = options.get("caption", "")
    return Block(rest.strip(), code, caption.removeprefix(NOT_RUN) if caption.startswith(NOT_RUN) else None)


def words_of(text: str) -> list[list[str]]:
    """The commands of a shell block as words, with lines joined, variables and globs expanded."""
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    split = [shlex.split(line, comments=True) for line in lines]
    return [[name for word in words for name in _expanded(word)] for words in split if words]


def _expanded(word: str) -> list[str]:
    word = os.path.expandvars(word)
    return sorted(glob.glob(word)) if "*" in word and glob.glob(word) else [word]


def run(block: Block, names: dict, where: str) -> None:
    """Run a block: Python in ``names``, commands of ours by the program itself."""
    if block.kind == "python":
        exec(compile(block.text, where, "exec"), names)
        return
    for words in words_of(block.text):
        assert words[0] == "xdeconv", f"{where}: {words[0]!r} is not run by tests: mark the block as not run"
        result = CliRunner().invoke(cli.app, words[1:], catch_exceptions=False)
        assert result.exit_code == 0, f"{where}: {' '.join(words)}: {result.output}"


def runnable(path: Path) -> list[Block]:
    """The blocks of a page that are to be run."""
    found = blocks(path.read_text(encoding="utf-8"))
    return [block for block in found if block.kind in ("python", "sh") and block.not_run is None]
