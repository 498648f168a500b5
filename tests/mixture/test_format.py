"""Model files: what an earlier version wrote is read, what a later one wrote is refused by name."""

from pathlib import Path

import numpy as np
import pandas
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

import xdeconv as xd
from xdeconv.system.files import VERSION, LaterVersion, load_tensors, save_tensors

OLD = Path(__file__).parent / "files" / "xdeconv-0.1.safetensors"


def test_a_model_of_version_0_1():
    model = xd.load(OLD)
    np.testing.assert_array_equal(model.weights, [0.25, 0.75])
    np.testing.assert_array_equal(model.means, [[0.5, -1.0], [2.0, 3.0]])
    np.testing.assert_array_equal(model.covariances, [[[1.0, 0.5], [0.5, 2.0]], [[3.0, 0.0], [0.0, 0.125]]])
    assert (model.labels, model.units) == (("parallax", "bp_rp"), ("mas", "mag"))
    assert model.meta["where"] == "ruwe < 1.4"
    table = pandas.DataFrame({"parallax": [1.0, 2.0], "bp_rp": [0.5, 0.7], "bp_rp_error": [0.1, 0.2]})
    right = model.log_prob(table[["parallax", "bp_rp"]].to_numpy(), error=[[0.5, 0.1], [0.5, 0.2]])
    np.testing.assert_allclose(model.log_prob(table), right)  # as the command remembered to read it


def test_what_is_written_has_a_version(tmp_path):
    xd.load(OLD).save(tmp_path / "m")
    with safe_open(tmp_path / "m", framework="numpy") as file:
        assert file.metadata()["version"] == str(VERSION)
        assert file.metadata()["features"] == "[]"
    np.testing.assert_array_equal(xd.load(tmp_path / "m").means, xd.load(OLD).means)


def altered(path, **metadata):
    with safe_open(OLD, framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        save_file(arrays, path, metadata=file.metadata() | metadata)
    return path


def test_a_later_version_is_refused(tmp_path):
    with pytest.raises(LaterVersion, match=r"was written by a later xdeconv \(version 3, known up to 2\)"):
        xd.load(altered(tmp_path / "m", version="3"))


@pytest.mark.parametrize("version", ["2.0", "", "0"])
def test_what_is_not_a_version_is_refused(tmp_path, version):
    with pytest.raises(ValueError, match=f"is damaged: '{version}' is not a version"):
        xd.load(altered(tmp_path / "m", version=version))


def test_unknown_features_are_refused_by_name(tmp_path):
    model = xd.load(OLD)
    arrays = {"weights": model.weights, "means": model.means, "covariances": model.covariances}
    save_tensors(tmp_path / "m", "mixture", arrays, {}, features=["wings", "fins"])
    with pytest.raises(LaterVersion, match="uses fins, wings, which this xdeconv does not have"):
        xd.load(tmp_path / "m")
    assert load_tensors(tmp_path / "m", "mixture", features=["fins", "wings"])[0]["means"].shape == (2, 2)


def test_features_cannot_be_taken_out(tmp_path):
    model = xd.load(OLD)
    save_tensors(tmp_path / "m", "mixture", {"weights": model.weights}, {}, features=["fins"])
    content = (tmp_path / "m").read_bytes()
    (tmp_path / "m").write_bytes(content.replace(b'[\\"fins\\"]', b"[        ]"))
    with pytest.raises(ValueError, match="damaged"):
        load_tensors(tmp_path / "m", "mixture")
