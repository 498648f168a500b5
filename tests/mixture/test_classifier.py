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
    found = Classifier({"a": gaussian(0.0), "b": gaussian(1.0)}, "equal").predict_proba([[1e3]])
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
        Classifier({"a": point, "b": gaussian(0.0)}, "equal").predict_proba([[0.0]])


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


def test_priors_that_are_not_said_are_warned_of_once():
    model = Classifier({"a": gaussian(0.0), "b": gaussian(1.0)})
    for question in (model.predict, model.predict_proba, model.log_joint):
        with pytest.warns(UserWarning, match="priors are not said: every class is taken to be equally common") as said:
            question([[0.0]])
        assert len(said) == 1
    assert np.allclose(model.predict_proba([[0.5]], priors="equal"), 0.5)
    with pytest.raises(ValueError, match="priors must be a dict or one of equal, training, fitted, got 'even'"):
        Classifier({"a": gaussian(0.0)}, "even")


def test_names_come_as_an_array():
    found = Classifier({"near": gaussian(0.0), "far": gaussian(9.0)}, "equal").predict([[0.0], [9.0], [1.0]])
    assert isinstance(found, np.ndarray)
    assert found.tolist() == ["near", "far", "near"]
    assert (found == "near").sum() == 2


def test_training_fractions_are_remembered():
    a, b = (gaussian(0.0).with_(meta={"fit": {"rows": n}}) for n in (10, 990))
    assert np.allclose(Classifier({"a": a, "b": b}, "training").predict_proba([[3.0]]), [[0.01, 0.99]])
    with pytest.raises(ValueError, match="the mixture of 'c' does not remember how many rows it was fitted to"):
        Classifier({"a": a, "c": gaussian(0.0)}, "training")


def test_rows_are_read_as_the_mixtures_read_them():
    import pandas

    table = pandas.DataFrame({"x": [0.5, 2.0], "x_error": [3.0, 0.1]})
    model = Classifier({"a": gaussian(0.0, labels=["x"]), "b": gaussian(3.0, labels=["x"])}, {"a": 1, "b": 2})
    right = model.predict_proba(table[["x"]].to_numpy(), error=table[["x_error"]].to_numpy())
    np.testing.assert_allclose(model.predict_proba(table), right)
    assert abs(right - model.predict_proba(table[["x"]].to_numpy())).max() > 0.1


RARE = 0.01


def rare_class():
    """A rare class in a common one, fitted to rows of unequal noise; and rows of both, each with noise of its own."""
    import xdeconv as xd

    rng = np.random.default_rng(3)
    rare, common = Mixture([1.0], [[3.0, 2.0]], [0.2 * np.eye(2)]), Mixture([1.0], [[0.0, 0.0]], [np.eye(2)])
    truth = {"rare": rare, "common": common}
    models = {}
    for name, (rows, sd) in {"rare": (20_000, 1.0), "common": (1_980_000, 0.2)}.items():
        X = truth[name].sample(20_000, seed=1, error=np.full(2, sd))
        models[name] = xd.fit(X, 1, error=np.full(2, sd)).mixture
        models[name] = models[name].with_(meta={"fit": {"rows": rows}})
    n = 600_000
    member = rng.random(n) < RARE
    error = rng.uniform(0.05, 0.8, size=(n, 2))
    v = np.where(member[:, None], truth["rare"].sample(n, seed=5), truth["common"].sample(n, seed=6))
    return models, v + error * rng.normal(size=(n, 2)), error, member


@pytest.mark.slow
def test_a_rare_class_is_calibrated_with_every_kind_of_priors():
    models, X, error, member = rare_class()
    for priors in ("training", {"rare": RARE, "common": 1 - RARE}, "fitted"):
        p = Classifier(models, priors).predict_proba(X, error=error)[:, 0]
        which = np.minimum((10 * p).astype(int), 9)
        for b in range(10):
            inside = which == b
            assert inside.sum() > 50
            slack = 2 * np.sqrt(p[inside].mean() * (1 - p[inside].mean()) / inside.sum())
            assert abs(p[inside].mean() - member[inside].mean()) < 0.02 + slack, (priors, b)
    fitted = Classifier(models).fitted_priors(X, error=error)
    assert fitted["rare"] == pytest.approx(RARE, abs=0.001)
    equal = Classifier(models, "equal").predict_proba(X, error=error)[:, 0]
    high = equal > 0.9
    assert member[high].mean() < 0.6  # what equal priors do to a rare class


def test_classes_whose_errors_differ_are_calibrated_with_priors_by_error_size():
    """How common each class is among training rows of like errors, for each row: within 2 points over ten bins."""
    rng = np.random.default_rng(5)
    mixtures = {"star": Mixture([1.0], [[0.0]], [[[1.0]]]), "galaxy": Mixture([1.0], [[1.0]], [[[1.0]]])}
    errors = {"star": (0.2, 1.0), "galaxy": (0.6, 3.0)}
    sizes, edges = {"star": 60_000, "galaxy": 20_000}, np.linspace(0.2, 3.0, 29)
    counts = {name: np.histogram(rng.uniform(*errors[name], n), edges)[0] + 0.5 for name, n in sizes.items()}
    error = np.concatenate([rng.uniform(*errors[name], (n, 1)) for name, n in sizes.items()])
    X = np.concatenate([mixtures[name].sample(n, seed=n, error=error[first : first + n])
                        for name, n, first in (("star", 60_000, 0), ("galaxy", 20_000, 60_000))])  # fmt: skip
    galaxy = np.arange(80_000) >= 60_000
    place = np.clip(np.searchsorted(edges, error[:, 0]) - 1, 0, len(edges) - 2)

    def off(priors):
        p = Classifier(mixtures, priors).predict_proba(X, error=error)[:, 1]
        bins = np.minimum((10 * p).astype(int), 9)
        away = [abs(p[bins == b].mean() - galaxy[bins == b].mean()) for b in range(10) if (bins == b).sum() >= 1000]
        return max(away)

    assert off({name: counts[name][place] for name in mixtures}) < 0.02
    assert off({"star": 3, "galaxy": 1}) > 0.1  # one number for all rows does not know that large errors are galaxies'
