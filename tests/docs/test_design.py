"""The page of the design names files, rooms and functions that are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
WALK = PAGE.partition("## The walk of a row")[2].partition("## How to add")[0]
FILES = sorted(set(re.findall(r"`((?:\w+/)*\w+\.py)", PAGE)))
FUNCTIONS = sorted({name for name in re.findall(r"`(\w+)`", WALK) if re.match(r"[a-z]\w*_\w+$", name)})


@pytest.mark.parametrize("name", FILES)
def test_files_are_there(name):
    assert any(str(path).endswith(f"/{name}") for top in ("src", "tests") for path in (ROOT / top).rglob("*.py"))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_there(name):
    found = re.compile(rf"def {name}\(")
    assert any(found.search(path.read_text(encoding="utf-8")) for path in (ROOT / "src").rglob("*.py"))


def test_every_room_is_in_the_table():
    rooms = {path.parent.name for path in (ROOT / "src" / "xdeconv").glob("*/__init__.py")}
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, flags=re.MULTILINE)) == rooms
