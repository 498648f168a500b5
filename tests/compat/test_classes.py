"""The scikit-learn shell of classes, each a mixture."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import xdeconv as xd
from xdeconv import XDClassifier

NEAR = xd.Mixture([0.5, 0.5], [[0, 0], [0, 6]], [0.2 * np.eye(2)] * 2)
FAR = xd.Mixture([1.0], [[1.5, 3]], [0.5 * np.eye(2)])


@pytest.mark.slow
@parametrize_with_checks([XDClassifier(max_iter=20, tol=0), XDClassifier(max_iter=20, tol=0, reg_covar=1e-6)])
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def rows(n=400, seed=0):
    """Rows of two classes whose errors differ from row to row, a few values missing."""
    error = np.random.default_rng(seed).uniform(0.05, 2.0, size=(n, 2))
    y = np.repeat(["far", "near"], [n // 4, n - n // 4])
    X = np.concatenate([FAR.sample(n // 4, seed=seed), NEAR.sample(n - n // 4, seed=seed + 1)])
    X += error * np.random.default_rng(seed + 2).normal(size=X.shape)
    X[::17, 1] = np.nan
    return X, y, error


def test_probabilities_are_those_of_the_true_classes():
    X, y, error = rows(3000)
    model = XDClassifier({"near": 2, "far": 1}, random_state=0).fit(X, y, error=error)
    assert model.class_prior_ == pytest.approx([0.25, 0.75])
    assert {name: mixture.k for name, mixture in model.mixtures_.items()} == {"far": 1, "near": 2}
    X, y, error = rows(3000, seed=10)
    truth = xd.Classifier({"far": FAR, "near": NEAR}, {"far": 1, "near": 3})
    expected = truth.predict_proba(X, error=error)
    assert np.abs(model.predict_proba(X, error=error) - expected).mean() < 0.02
    best = np.mean(truth.predict(X, error=error) == y)
    assert model.score(X, y, error=error) == pytest.approx(best, abs=0.01)


@pytest.mark.slow
def test_noise_matters():
    X, y, error = rows(2000)
    model = XDClassifier(2, random_state=0).fit(X, y, error=error)
    with pytest.warns(UserWarning, match="fitted with errors"):
        blind = model.score(X, y)
    assert model.score(X, y, error=error) > blind


def test_priors_are_said():
    X, y, error = rows()
    first = XDClassifier(random_state=0).fit(X, y, error=error).predict_proba(X, error=error)
    rare = XDClassifier(priors={"far": 1, "near": 1e6}, random_state=0).fit(X, y, error=error)
    assert (rare.predict_proba(X, error=error)[:, 0] < first[:, 0]).all()


def test_tables_give_their_columns_in_any_order():
    import pandas

    X, y, error = rows()
    table, errors = (pandas.DataFrame(a, columns=["a", "b"]) for a in (X, error))
    model = XDClassifier(random_state=0).fit(table, y, error=errors[["b", "a"]])
    plain = XDClassifier(random_state=0).fit(X, y, error=error)
    assert np.array_equal(model.predict_proba(table, error=errors), plain.predict_proba(X, error=error))


@pytest.mark.slow
def test_errors_reach_every_fold_by_metadata_routing():
    X, y, error = rows()
    with sklearn.config_context(enable_metadata_routing=True):
        model = XDClassifier(random_state=0).set_fit_request(error=True).set_score_request(error=True)
        grid = GridSearchCV(model, {"n_components": [1, 2]}, cv=3).fit(X, y, error=error)
        scores = cross_val_score(model, X, y, params={"error": error}, cv=3)
    assert set(grid.cv_results_["params"][0]) == {"n_components"}
    assert scores.min() > 0.6


def test_rows_of_pandas_are_paired_by_their_index():
    rng = np.random.default_rng(0)
    y = pd.Series(np.repeat(["a", "b"], 60))
    X = pd.DataFrame(np.where(y == "a", 0.0, 2.0)[:, None] + rng.normal(size=(120, 2)), columns=["u", "v"])
    error, order = pd.DataFrame(rng.uniform(0.1, 1, size=(120, 2)), columns=["u", "v"]), rng.permutation(120)
    right = xd.XDClassifier(1, random_state=0).fit(X, y, error=error)
    mixed = xd.XDClassifier(1, random_state=0).fit(X, y.iloc[order], error=error.iloc[order])
    assert np.array_equal(mixed.predict_proba(X, error=error.iloc[order]), right.predict_proba(X, error=error))
    assert right.score(X, y.iloc[order], error=error) == right.score(X, y, error=error)
    other = error.set_axis(np.arange(120) + 5)
    with pytest.raises(ValueError, match="the index of error is not that of the rows"):
        right.predict_proba(X, error=other)
    with pytest.raises(ValueError, match="the index of y is not that of the rows"):
        right.fit(X, y.set_axis(other.index), error=error)
    with pytest.warns(UserWarning, match="u_error, v_error: called errors of u, v"):
        xd.XDClassifier(1).fit(X.join(error.add_suffix("_error")), y)


def test_priors_of_other_classes_are_refused_by_fit():
    """They were a KeyError of predict."""
    X, y, error = rows(100)
    with pytest.raises(ValueError, match=r"priors are given for \['far'\] and the classes are \['far', 'near'\]"):
        XDClassifier(priors={"far": 1.0}).fit(X, y, error=error)
