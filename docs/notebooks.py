"""The gallery as Jupyter notebooks: `make notebooks`, or python docs/notebooks.py FOLDER [PAGE...]."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

GALLERY = Path(__file__).parent / "gallery"
HEADER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TAGS = re.compile(r"\A:tags: *\[([^\]]*)\]\n")
ROLE = re.compile(r"\{\w+\}`~?([^`<]+?)(?: <([^>]+)>)?`")
KERNEL = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}


def notebook(page: str) -> dict[str, Any]:
    """A page as a notebook of format 4: text and code in its order, without the cells that only tests see."""
    text, cells, at = HEADER.sub("", page), [], 0
    for found in CELL.finditer(text):
        cells.append(_markdown(text[at : found.start()]))
        cells.append(_code(found[1]))
        at = found.end()
    cells.append(_markdown(text[at:]))
    kept = [cell for cell in cells if cell is not None]
    numbered = [{**cell, "id": f"cell-{number}"} for number, cell in enumerate(kept)]
    return {"cells": numbered, "metadata": KERNEL, "nbformat": 4, "nbformat_minor": 5}


def _markdown(text: str) -> dict[str, Any] | None:
    """Text with plain code for roles, which notebooks do not know; links to other pages lose their target."""
    plain = ROLE.sub(lambda found: f"`{found[2] or found[1]}`", text).strip()
    plain = re.sub(r"\[([^\]]+)\]\((?!https?:)[^)]*\.md[^)]*\)", r"\1", plain)
    return {"cell_type": "markdown", "metadata": {}, "source": _lines(plain)} if plain else None


def _code(body: str) -> dict[str, Any] | None:
    tags = TAGS.match(body)
    if tags and "remove-cell" in tags[1]:
        return None
    source = TAGS.sub("", body).strip("\n")
    return {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": _lines(source)}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def write(folder: Path, pages: list[str]) -> list[Path]:
    """Write the notebooks of some pages of the gallery, of all by default."""
    folder.mkdir(parents=True, exist_ok=True)
    names = pages or sorted(path.stem for path in GALLERY.glob("*.md") if path.stem != "index")
    made = []
    for name in names:
        target = folder / f"{name}.ipynb"
        page = (GALLERY / f"{name}.md").read_text(encoding="utf-8")
        target.write_text(json.dumps(notebook(page), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        made.append(target)
    return made


if __name__ == "__main__":
    for path in write(Path(sys.argv[1]), sys.argv[2:]):
        print(path)
