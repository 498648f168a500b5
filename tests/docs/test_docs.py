"""The pages: their code runs, and nothing public is left out. `make docs` builds them all, warnings as errors."""

import os
import re
from pathlib import Path

import matplotlib as mpl
import pytest
import typer

import xdeconv as xd
from xdeconv import cli

mpl.use("Agg")
DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.glob("**/*.md"))
CELL = re.compile(r"```\{code-cell\}[^\n]*\n(?::tags:[^\n]*\n)?(.*?)```", flags=re.DOTALL)
EXECUTED = [page for page in PAGES if CELL.search(page.read_text(encoding="utf-8"))]
GALLERY = {"noise", "missing", "hipparcos", "parallaxes", "components", "methods", "float32", "quasars", "members"}


def text(name):
    return (DOCS / name).read_text(encoding="utf-8")


@pytest.mark.docs
@pytest.mark.parametrize("page", EXECUTED, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs_and_holds_what_it_claims(page, tmp_path, monkeypatch):
    import matplotlib.pyplot as plt

    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for number, code in enumerate(CELL.findall(page.read_text(encoding="utf-8"))):
        exec(compile(code, f"{page.name}, cell {number}", "exec"), names)
    plt.close("all")


def test_the_gallery_is_complete():
    assert {page.stem for page in (DOCS / "gallery").glob("*.md")} == GALLERY | {"index"}
    assert set(re.findall(r"^(\w+)$", text("gallery/index.md"), flags=re.MULTILINE)) >= GALLERY


@pytest.mark.parametrize("name", xd.__all__)
def test_every_public_name_is_documented(name):
    assert re.search(rf"^\.\. auto\w+:: xdeconv\.{name}$", text("api.md"), flags=re.MULTILINE)


@pytest.mark.parametrize("command", list(typer.main.get_command(cli.app).commands))
def test_every_command_is_documented(command):
    assert f"\n## {command}\n" in text("cli.md")
    assert f"```{{command-help}} {command}\n" in text("cli.md")


def test_no_command_is_documented_that_does_not_exist():
    known = typer.main.get_command(cli.app).commands
    assert set(re.findall(r"\{command-help\} (\S+)", text("cli.md"))) == set(known)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: os.path.relpath(page, DOCS))
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / link).exists(), link


def test_every_page_is_in_a_table_of_contents():
    listed = set(re.findall(r"^([\w/]+)$", text("index.md"), flags=re.MULTILINE))
    assert {page.stem for page in DOCS.glob("*.md")} - {"index"} <= listed
