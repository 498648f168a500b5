"""Classifier: Bayes' rule over mixtures."""

import numpy as np
import pytest

from xdeconv.mixture._mixture import Mixture
from xdeconv.mixture.classifier import Classifier


def gaussian(mean, sd=1.0, **names):
    return Mixture([1.0], [[mean]], [[[sd**2]]], **names)


def test_it_is_bayes_rule():
    classes = {"a": gaussian(0.0), "b": gaussian(3.0, 2.0)}
    x, noise = np.array([[0.0], [1.0], [5.0], [np.nan]]), np.full((4, 1), 0.5)
    found = Classifier(classes, {"a": 0.2, "b": 0.8}).predict_proba(x, noise=noise)
    odds = np.stack([0.2 * np.exp(classes["a"].log_prob(x, noise)), 0.8 * np.exp(classes["b"].log_prob(x, noise))], 1)
    assert np.allclose(found, odds / odds.sum(1, keepdims=True))
    assert np.allclose(found[3], [0.2, 0.8])


def test_far_rows_do_not_underflow():
    found = Classifier({"a": gaussian(0.0), "b": gaussian(1.0)}).predict_proba([[1e3]])
    assert found.tolist() == [[0.0, 1.0]]


def test_the_order_of_priors_does_not_matter():
    classes = {"a": gaussian(0.0), "b": gaussian(0.0)}
    assert np.allclose(Classifier(classes, {"b": 3, "a": 1}).predict_proba([[0.0]]), [[0.25, 0.75]])


def test_priors_may_be_counts_of_each_row():
    classes = {"a": gaussian(0.0), "b": gaussian(1.0)}
    x, counts = np.full((3, 1), 0.5), np.array([1.0, 3.0, 0.0])
    expected = [[0.5, 0.5], [0.75, 0.25], [0.0, 1.0]]
    assert np.allclose(Classifier(classes, {"a": counts, "b": 1.0}).predict_proba(x), expected)
    assert np.allclose(Classifier(classes).predict_proba(x, priors={"a": counts, "b": np.ones(3)}), expected)
    with pytest.raises(ValueError, match="priors are given for 3 rows, and X has 2"):
        Classifier(classes, {"a": counts, "b": 1.0}).predict_proba(x[:2])
    with pytest.raises(ValueError, match=r"not all zero: \[0. 0.\] in row 2"):
        Classifier(classes, {"a": counts, "b": counts})
    with pytest.raises(ValueError, match="for the same n rows"):
        Classifier(classes, {"a": counts, "b": np.ones(2)})


def test_noise_and_missing_values():
    narrow = Mixture([1.0], [[0.0, 0.0]], [np.eye(2)], labels=["x", "y"], units=["mag", "mag"])
    wide = Mixture([1.0], [[0.0, 2.0]], [4 * np.eye(2)], labels=["x", "y"], units=["mag", "mag"])
    model = Classifier({"narrow": narrow, "wide": wide}, {"narrow": 0.3, "wide": 0.7})
    X, error = np.array([[1.0, np.nan], [1.0, 3.0]]), np.array([[0.5, 0.0], [0.5, 2.0]])
    joint = [np.log(p) + m.log_prob(X, error=error) for p, m in ((0.3, narrow), (0.7, wide))]
    expected = 1 / (1 + np.exp(joint[1] - joint[0]))
    assert np.allclose(model.predict_proba(X, error=error)[:, 0], expected)


def test_rows_without_a_density_are_named():
    point = Mixture([1.0], [[0.0]], [[[0.0]]])
    with pytest.raises(ValueError, match="row 0 has no density"):
        Classifier({"a": point, "b": gaussian(0.0)}).predict_proba([[0.0]])


def test_classes_must_agree():
    with pytest.raises(ValueError, match="differ in labels"):
        Classifier({"a": gaussian(0.0, labels=["x"]), "b": gaussian(0.0, labels=["y"])})
    with pytest.raises(ValueError, match="differ in labels"):
        Classifier({"a": gaussian(0.0, labels=["x"]), "b": gaussian(0.0)})
    with pytest.raises(ValueError, match="differ in units"):
        Classifier({"a": gaussian(0.0, units=["mas"]), "b": gaussian(0.0, units=["deg"])})
    with pytest.raises(ValueError, match="priors are given for"):
        Classifier({"a": gaussian(0.0)}, {"b": 1.0})
    with pytest.raises(ValueError, match="must be probabilities"):
        Classifier({"a": gaussian(0.0)}, {"a": -1.0})
    with pytest.raises(ValueError, match="at least one class"):
        Classifier({})
