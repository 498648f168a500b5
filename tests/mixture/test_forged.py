"""Models of somebody else: facts of any shape, with a right checksum, are refused or left aside, never obeyed."""

import json
import struct

import numpy as np
import pandas as pd
import pytest

import xdeconv as xd
from xdeconv.fitting.history import remembered
from xdeconv.mixture.storing import FEATURES
from xdeconv.plot.explorer._explore import facts as page_facts
from xdeconv.system.files import load_tensors, save_tensors

ROWS = 40


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    values = {name: rng.normal(size=ROWS) for name in "xy"}
    return pd.DataFrame(values | {f"{name}_error": rng.uniform(0.1, 0.5, ROWS) for name in "xy"})


@pytest.fixture(scope="module")
def saved(rows, tmp_path_factory):
    """Two models as files: of cuts, and of factors, which do not go together."""
    folder, source = tmp_path_factory.mktemp("forged"), xd.open(rows, ["x", "y"])
    beside = {"selection": xd.Cut("x", above=-9), "inflation": xd.Inflation(by="y", bins=[0.0])}
    for name, given in beside.items():
        xd.fit(source, 1, epochs=2, **{name: given}).mixture.save(folder / f"{name}.safetensors")
    return folder


@pytest.mark.parametrize(
    "forged",
    [{"where": "x > 0"}, {"bad_rows": "drop"}, {"skip_bad_files": True}, {"memory": False}, {"nonsense": 5},
     {"columns": "xy"}, {"columns": [1, 2]}, {"columns": {"x": 1, "y": 2}}, {"error": [1]}, {"derive": 5},
     {"derive": [["Formulated"]]}, {"derive": [["Formulated", "x", "y", 5, []]]}, {"functions": 5},
     {"derive": [["Rotation", [[1, 0, 0], [0, 1, 0], [0, 0, 1]], ["x", "y"], ["x", "y"], "east"]]},
     {"group": {"column": "x"}}, {"group": {"name": "x", "edges": [2, 1]}}, {"weight": ["x"]}],
    ids=str,
)  # fmt: skip
def test_a_forged_way_to_read_is_refused_by_the_library(rows, tmp_path, forged):
    """Not only by the command: one with ``where`` had chosen the rows that are answered."""
    meta = {"open": {"columns": ["x", "y"], **forged}}
    model = xd.Mixture([1.0], [[0.0, 0.0]], [np.eye(2)], labels=["x", "y"], meta=meta)
    rows.to_parquet(tmp_path / "rows.parquet")
    for given in (rows, tmp_path / "rows.parquet"):
        with pytest.raises(ValueError, match=r"which this xdeconv does not know|damaged"):
            model.posterior(given)


@pytest.mark.parametrize("written", ["yesterday", 5, ["x"]])
def test_a_way_to_read_that_is_not_a_table_is_refused(rows, written):
    model = xd.Mixture([1.0], [[0.0, 0.0]], [np.eye(2)], labels=["x", "y"], meta={"open": written})
    assert len(model.posterior(rows[["x", "y"]].to_numpy(), error=[0.1, 0.1]).mean()) == ROWS
    with pytest.raises(ValueError, match="is not a table of options"):
        model.posterior(rows)


CHANGES = [
    ("structure", 5),
    ("structure", {"full": 1}),
    ("tails", [3.0]),
    ("selection", []),
    ("selection", {"kind": "cuts", "edges": [[{}, True, 0.0, 0.0]]}),
    ("selection", {"kind": "cuts", "edges": [[0, True, {}, 0.0]]}),
    ("selection", {"kind": "cuts", "edges": [[2, True, 0.0, 0.0]]}),
    ("selection", {"kind": "cuts", "edges": [[-1, True, 0.0, 0.0]]}),
    ("inflation", []),
    ("inflation grouping", ["y"]),
    ("inflation grouping", {"name": "y", "edges": [0.0], "coordinate": 2}),
    ("inflation grouping", {"name": "y", "edges": [0.0], "coordinate": True}),
    ("inflation grouping", {"name": "y", "edges": [1.0, 0.0]}),
    ("inflation grouping", {"name": "y", "values": [["a"], ["b"], ["c"]]}),
    ("inflation grouping", None),
    ("inflation additive", "full"),
    ("inflation additive", [7]),
    ("inflation of", [2]),
    ("inflation rows", [1.0]),
    ("inflation spread", [[1.0]]),
    ("inflation values", [[1.0], [1.0], [1.0]]),
    ("inflation values", 5),
]


@pytest.mark.parametrize(("place", "forged"), CHANGES, ids=str)
def test_what_stands_beside_the_gaussians_is_refused_when_it_is_loaded(saved, tmp_path, place, forged):
    *above, name = place.split()
    model = "selection" if name == "selection" else "inflation"
    arrays, facts = load_tensors(saved / f"{model}.safetensors", "mixture", FEATURES)
    inside = facts[above[0]] if above else facts
    inside[name] = forged
    save_tensors(tmp_path / "forged.safetensors", "mixture", arrays, facts)
    with pytest.raises(ValueError, match="is damaged"):
        xd.load(tmp_path / "forged.safetensors")


@pytest.mark.parametrize(
    ("kind", "shape", "size"), [("F8_E4M3", [8], 8), ("BF16", [4], 8), ("F64", [2**31, 0, 2**31], 0)], ids=str
)
def test_tensors_that_numpy_cannot_hold_are_refused_by_name(tmp_path, kind, shape, size):
    metadata = {"format": "xdeconv mixture", "version": "2", "facts": "{}", "features": "[]", "checksum": "0"}
    told = {"__metadata__": metadata, "means": {"dtype": kind, "shape": shape, "data_offsets": [0, size]}}
    header = json.dumps(told).encode()
    (tmp_path / "m.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(size))
    with pytest.raises(ValueError, match=r"m\.safetensors is (truncated, )?damaged"):
        xd.load(tmp_path / "m.safetensors")


def test_what_is_not_forged_is_loaded(saved):
    assert xd.load(saved / "inflation.safetensors").inflation.factors.shape == (3, 2)
    assert xd.load(saved / "selection.safetensors").selection.coordinates == [0]


# Words of a fit that a user took for something else

OWN = {"epochs": "J2016", "loglik": None, "fit": "by hand", "history": {"epoch": "a long one"}, "errors": "small"}


def test_meta_of_a_user_is_not_taken_for_that_of_a_fit(rows):
    model = xd.Mixture([1.0], [[0.0, 0.0]], [np.eye(2)], labels=["x", "y"], meta=OWN)
    assert model.to_sklearn().n_iter_ == 0
    assert len(model.posterior(rows).mean()) == ROWS
    assert page_facts(model)["meta"] == OWN
    with pytest.raises(ValueError, match="does not remember how many rows"):
        xd.Classifier({"a": model, "b": model}, priors="training").predict(rows)


@pytest.mark.parametrize(
    ("name", "column"), [("loglik", [None]), ("restart", ["a"]), ("moved", [0.5]), ("epoch", [{}])]
)
def test_a_forged_history_is_none(name, column):
    history = {"epoch": [0], "restart": [0], "loglik": [-1.0], "validation": [None], "moved": [None]}
    model = xd.Mixture([1.0], [[0.0]], [[[1.0]]], meta={"history": {**history, name: column}})
    assert len(remembered({"history": history})) == 1
    with pytest.raises(ValueError, match="remembers no history"):
        xd.plot.history(model)
    assert page_facts(model)["history"] is None
