"""Classifier: Bayes' rule over mixtures."""

import numpy as np
import pytest

from xdeconv.classifier import Classifier
from xdeconv.mixture import Mixture


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


def test_classes_must_agree():
    with pytest.raises(ValueError, match="differ in labels"):
        Classifier({"a": gaussian(0.0, labels=["x"]), "b": gaussian(0.0, labels=["y"])})
    with pytest.raises(ValueError, match="differ in units"):
        Classifier({"a": gaussian(0.0, units=["mas"]), "b": gaussian(0.0, units=["deg"])})
    with pytest.raises(ValueError, match="priors are given for"):
        Classifier({"a": gaussian(0.0)}, {"b": 1.0})
    with pytest.raises(ValueError, match="must be probabilities"):
        Classifier({"a": gaussian(0.0)}, {"a": -1.0})
    with pytest.raises(ValueError, match="at least one class"):
        Classifier({})
