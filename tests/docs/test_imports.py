"""Imports point one way inside every room, those within functions included, and everything in it is written once."""

from pathlib import Path

import grimp

ROOT = Path(__file__).parents[2] / "src" / "xdeconv"


def test_no_cycles():
    graph = grimp.build_graph("xdeconv", cache_dir=None)
    assert "xdeconv.mixture.posterior" in graph.modules
    cycles = [
        (a, b)
        for a in graph.modules
        for b in graph.find_modules_directly_imported_by(a)
        if graph.chain_exists(importer=b, imported=a)
    ]
    assert cycles == []


def test_constants_of_the_sky_are_written_once():
    for number in ("4.740470463", "0.8734370902"):
        assert len([path for path in ROOT.rglob("*.py") if number in path.read_text(encoding="utf-8")]) == 1
