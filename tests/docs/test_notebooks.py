"""The gallery as notebooks: the code of the pages, in their order, in files that Jupyter opens."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from blocks import blocks

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(path.stem for path in (DOCS / "gallery").glob("*.md") if path.stem != "index")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What `make notebooks` makes."""
    made = tmp_path_factory.mktemp("notebooks")
    subprocess.run([sys.executable, str(DOCS / "notebooks.py"), str(made)], check=True, capture_output=True)
    return made


@pytest.mark.processes
@pytest.mark.parametrize("name", PAGES)
def test_a_notebook_has_the_code_of_its_page(name, folder):
    found = json.loads((folder / f"{name}.ipynb").read_text(encoding="utf-8"))
    assert (found["nbformat"], found["nbformat_minor"]) == (4, 5)
    assert found["cells"][0]["cell_type"] == "markdown"
    assert found["cells"][0]["source"][0].startswith("# ")
    code = ["".join(cell["source"]) for cell in found["cells"] if cell["cell_type"] == "code"]
    page = [block.text.strip("\n") for block in blocks((DOCS / "gallery" / f"{name}.md").read_text(encoding="utf-8"))]
    assert set(code) <= set(page)
    assert code == [text for text in page if text in code]
    for text in code:
        compile(text, name, "exec")
    words = "".join("".join(cell["source"]) for cell in found["cells"] if cell["cell_type"] == "markdown")
    assert "{class}" not in words
    assert ".md)" not in words


@pytest.mark.processes
def test_a_notebook_runs(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(os.environ, "MPLBACKEND", "Agg")
    cells = json.loads((folder / "noise.ipynb").read_text(encoding="utf-8"))["cells"]
    names: dict = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    import matplotlib.pyplot as plt

    assert plt.get_fignums()
    plt.close("all")
