"""Marks are right: what starts a process says so, so that `make quick` leaves it out."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
STARTS = {"subprocess", "Popen", "multiprocessing"}


def functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def starting(tree: ast.Module) -> set[str]:
    """The functions that start a process, by themselves or through another of the file."""
    known, found = functions(tree), set(STARTS)
    while True:
        more = {name for name, node in known.items() if names(node) & found} | found
        if more == found:
            return found & set(known)
        found = more


def marked(node: ast.Module | ast.FunctionDef) -> bool:
    if isinstance(node, ast.FunctionDef):
        return any("mark.processes" in ast.unparse(mark) for mark in node.decorator_list)
    return any("pytestmark" in ast.unparse(line) and "mark.processes" in ast.unparse(line) for line in node.body)


def unmarked(path: Path) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    wanted = sorted(name for name in starting(tree) if name.startswith("test_"))
    return [] if marked(tree) else [name for name in wanted if not marked(functions(tree)[name])]


@pytest.mark.slow
def test_what_starts_a_process_is_marked():
    found = {str(path.relative_to(TESTS)): unmarked(path) for path in TESTS.rglob("test_*.py")}
    assert not {name: tests for name, tests in found.items() if tests}
