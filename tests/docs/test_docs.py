"""The pages: their code runs, and nothing public is left out. `make docs` builds them all, warnings as errors."""

import os
import re
import shutil
import sys
from pathlib import Path

import matplotlib as mpl
import pytest
import typer

import xdeconv as xd
from xdeconv import cli

sys.path.insert(0, str(Path(__file__).parent))
import users_folder
from blocks import INDENTED, blocks, run, runnable

mpl.use("Agg")
DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.glob("**/*.md"))
GALLERY = {"noise", "missing", "hipparcos", "parallaxes", "components", "methods", "float32", "quasars", "members",
           "abundances", "errors", "background", "tails", "inflation", "selection"}  # fmt: skip


def page_id(page):
    return os.path.relpath(page, DOCS)


def text(name):
    return (DOCS / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("reader")
    users_folder.fill(path)
    return path


@pytest.mark.docs
@pytest.mark.parametrize("page", [page for page in PAGES if runnable(page)], ids=page_id)
def test_the_code_of_a_page_runs_and_holds_what_it_claims(page, folder, tmp_path, monkeypatch, request):
    import matplotlib.pyplot as plt

    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for number, block in enumerate(runnable(page)):
        run(block, names, f"{page.name}, block {number}")
    if request.config.getoption("--redraw") and page.stem in GALLERY:
        draw_thumbnail(DOCS / "gallery" / "thumbnails" / f"{page.stem}.png")
    plt.close("all")


def draw_thumbnail(path):
    """The last picture of a page that ran, 240 points wide."""
    import matplotlib.pyplot as plt

    if plt.get_fignums():
        path.parent.mkdir(exist_ok=True)
        figure = plt.figure(plt.get_fignums()[-1])
        figure.savefig(path, dpi=240 / figure.get_figwidth(), bbox_inches="tight")


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_code_is_run_or_says_why_not(page):
    """The claim of the first page: no block of code, and no command, is outside a block that tests can see."""
    for block in blocks(page.read_text(encoding="utf-8")):
        assert block.kind not in ("bash", "console", "shell", "py", "ipython3"), block.text
        assert block.kind not in ("python", "sh") or block.not_run != "", block.text
    assert not INDENTED.search(page.read_text(encoding="utf-8"))


def test_the_gallery_is_complete():
    assert {page.stem for page in (DOCS / "gallery").glob("*.md")} == GALLERY | {"index"}
    assert set(re.findall(r"^(\w+)$", text("gallery/index.md"), flags=re.MULTILINE)) >= GALLERY
    assert set(re.findall(r"\(thumbnails/(\w+)\.png\)", text("gallery/index.md"))) == GALLERY


@pytest.mark.parametrize("name", xd.__all__)
def test_every_public_name_is_documented(name):
    pages = "\n".join(page.read_text(encoding="utf-8") for page in (DOCS / "api").glob("*.md"))
    assert re.search(rf"^\.\. auto\w+:: xdeconv\.{name}(\.\w+)?$", pages, flags=re.MULTILINE)


@pytest.mark.parametrize("command", list(typer.main.get_command(cli.app).commands))
def test_every_command_is_documented(command):
    assert f"\n## {command}\n" in text("cli.md")
    assert f'\nprint_help("{command}")\n' in text("cli.md")


def test_no_command_is_documented_that_does_not_exist():
    known = typer.main.get_command(cli.app).commands
    assert set(re.findall(r'print_help\("(\S+)"\)', text("cli.md"))) == set(known)


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / link).exists(), link


def test_every_page_is_in_a_table_of_contents():
    listed = set(re.findall(r"^([\w/]+)$", text("index.md"), flags=re.MULTILINE))
    assert {page.stem for page in DOCS.glob("*.md")} - {"index"} <= listed
