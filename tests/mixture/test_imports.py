"""Imports inside the room of mixtures point one way, those within functions included."""

import grimp


def test_no_cycles():
    graph = grimp.build_graph("xdeconv")
    modules = graph.find_descendants("xdeconv.mixture")
    assert "xdeconv.mixture.posterior" in modules
    cycles = [
        (a, b)
        for a in modules
        for b in graph.find_modules_directly_imported_by(a) & modules
        if graph.chain_exists(importer=b, imported=a)
    ]
    assert cycles == []
