"""Mixtures for other programs, and back."""

import json

import numpy as np
import pytest
from sklearn.mixture import GaussianMixture

from problems import problem
from xdeconv.mixture._mixture import Mixture

GIVEN = problem(k=3, d=2, n=40, noise="none", seed=1)
MIXTURE = Mixture(
    GIVEN.weights, GIVEN.means, GIVEN.covariances, labels=["x", "long name"], units=["mas", ""], meta={"epochs": 3}
)


def test_to_sklearn():
    model = MIXTURE.with_(labels=None).to_sklearn()
    np.testing.assert_allclose(model.score_samples(GIVEN.X), MIXTURE.log_prob(GIVEN.X), rtol=1e-12)
    np.testing.assert_allclose(model.predict_proba(GIVEN.X), MIXTURE.responsibilities(GIVEN.X), atol=1e-12)
    assert model.sample(5)[0].shape == (5, 2)
    assert model.n_iter_ == 3
    assert MIXTURE.to_sklearn().feature_names_in_.tolist() == ["x", "long name"]
    with pytest.raises(ValueError, match="singular"):
        Mixture([1.0], [[0.0]], [[[0.0]]]).to_sklearn()


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
def test_from_sklearn(kind):
    model = GaussianMixture(2, covariance_type=kind, random_state=0).fit(GIVEN.X)
    mixture = Mixture.from_sklearn(model, labels=["a", "b"])
    np.testing.assert_allclose(mixture.log_prob(GIVEN.X), model.score_samples(GIVEN.X), rtol=1e-10)
    assert mixture.labels == ("a", "b")


def test_there_and_back():
    again = Mixture.from_sklearn(MIXTURE.to_sklearn())
    assert (again.covariances == MIXTURE.covariances).all()
    assert again.labels == MIXTURE.labels
    with pytest.raises(ValueError, match="not fitted"):
        Mixture.from_sklearn(GaussianMixture())


def test_npz(tmp_path):
    MIXTURE.export(tmp_path / "m.npz")
    with np.load(tmp_path / "m.npz", allow_pickle=False) as found:
        for name in ("weights", "means", "covariances"):
            assert (found[name] == getattr(MIXTURE, name)).all()
        assert found["labels"].tolist() == ["x", "long name"]
        assert found["units"].tolist() == ["mas", ""]
        assert json.loads(str(found["meta"])) == {"epochs": 3}


@pytest.mark.parametrize("mixture", [MIXTURE, Mixture([1.0], [[2.0]], [[[3.0]]])])
def test_fits(tmp_path, mixture):
    from astropy.io import fits
    from astropy.table import Table

    mixture.export(tmp_path / "m.fits")
    with fits.open(tmp_path / "m.fits") as file:
        table = file["COMPONENTS"].data
        assert (table["weight"] == mixture.weights).all()
        assert (np.reshape(table["mean"], mixture.means.shape) == mixture.means).all()
        assert (np.reshape(table["covariance"], mixture.covariances.shape) == mixture.covariances).all()
        assert list(file["COORDINATES"].data["label"]) == list(mixture.labels or ["x0"])
        assert json.loads(file["META"].data["json"][0]) == dict(mixture.meta)
    assert Table.read(tmp_path / "m.fits", hdu="COMPONENTS")["covariance"].shape[0] == mixture.k


def test_other_suffixes_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"must end in .npz or .fits"):
        MIXTURE.export(tmp_path / "m.txt")


def test_to_torch():
    import torch

    found = MIXTURE.to_torch()
    np.testing.assert_allclose(found.log_prob(torch.from_numpy(GIVEN.X)).numpy(), MIXTURE.log_prob(GIVEN.X), rtol=1e-10)
    np.testing.assert_allclose(found.mean.numpy(), MIXTURE.mean())
    np.testing.assert_allclose(found.variance.numpy(), np.diag(MIXTURE.covariance()))
    assert found.sample((5,)).shape == (5, 2)
    with pytest.raises(ValueError, match="component 0 is singular: torch's MultivariateNormal needs its inverse"):
        Mixture([1.0], [[0.0]], [[[0.0]]]).to_torch()


def test_to_numpyro():
    pytest.importorskip("numpyro")
    np.testing.assert_allclose(MIXTURE.to_numpyro().log_prob(GIVEN.X), MIXTURE.log_prob(GIVEN.X), rtol=1e-4)


def test_numpyro_is_asked_for(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "numpyro", None)
    with pytest.raises(ImportError, match="pip install numpyro"):
        MIXTURE.to_numpyro()


def test_parameters_travel_as_one():
    import torch

    log_weights, means, covariances = parameters = MIXTURE.tensors()
    assert (parameters.k, parameters.d) == (3, 2)
    np.testing.assert_array_equal(means.numpy(), MIXTURE.means)
    np.testing.assert_array_equal(covariances.numpy(), MIXTURE.covariances)
    np.testing.assert_allclose(log_weights.exp().numpy(), MIXTURE.weights)
    assert {t.dtype for t in parameters.to("cpu", torch.float32)} == {torch.float32}
    assert type(parameters.to("cpu")) is type(parameters)
