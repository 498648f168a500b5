"""The scikit-learn shell."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

import xdeconv as xd
from xdeconv import XDGMM


@pytest.mark.slow
@parametrize_with_checks(
    [XDGMM(max_iter=20, tol=0), XDGMM(method="minibatch-em", max_iter=3), XDGMM(method="sgd", max_iter=3)]
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def rows(n=300):
    rng = np.random.default_rng(0)
    S = rng.uniform(0.1, 1.0, size=(n, 2))
    X = rng.choice([-3.0, 3.0], size=(n, 1)) + rng.normal(size=(n, 2)) * np.sqrt(1 + S)
    return X, S


def test_a_fit_that_ends_by_its_limit_of_passes_says_so():
    X, S = rows()
    with pytest.warns(ConvergenceWarning, match="has not converged after 3 passes: raise max_iter, or tol"):
        assert not XDGMM(2, random_state=1, max_iter=3).fit(X, noise=S).converged_
    result = xd.fit(X, 2, noise=S, epochs=3)
    assert not result.converged
    assert any("ended after its limit of 3 passes and has not converged" in note for note in result.notes)
    assert XDGMM(2, random_state=1).fit(X, noise=S).converged_  # and warns of nothing


@pytest.mark.parametrize("method", ["em", "minibatch-em", "sgd", xd.EM(prior=xd.Prior(w=0.01))])
def test_attributes(method):
    X, S = rows()
    X[3, 0] = np.nan
    model = XDGMM(2, method=method, random_state=1, max_iter=30, tol=0).fit(X, noise=S)
    assert model.weights_.shape == (2,)
    assert model.means_.shape == (2, 2)
    np.testing.assert_allclose(model.precisions_ @ model.covariances_, np.tile(np.eye(2), (2, 1, 1)), atol=1e-8)
    factors = model.precisions_cholesky_
    np.testing.assert_allclose(factors @ factors.transpose(0, 2, 1), model.precisions_, rtol=1e-9)
    np.testing.assert_array_equal(np.tril(factors, -1), 0.0)
    assert model.lower_bounds_ == [epoch.loglik for epoch in model.history_]
    assert model.n_iter_ == len(model.history_) <= 30
    assert model.lower_bound_ == pytest.approx(model.score(X, noise=S), rel=1e-9)
    assert sorted(model.means_[:, 0].round()) == [-3.0, 3.0]
    draws, component = model.sample(20)
    assert draws.shape == (20, 2)
    assert component.shape == (20,)
    assert model.bic(X, noise=S) > model.aic(X, noise=S)
    np.testing.assert_allclose(model.predict_proba(X, noise=S).sum(1), 1.0)
    assert set(model.predict(X, noise=S)) == {0, 1}


def test_scoring_without_the_noise_warns():
    X, S = rows()
    model = XDGMM(2, random_state=0, max_iter=5, tol=0).fit(X, noise=S)
    with pytest.warns(UserWarning, match="fitted with errors"):
        model.score(X)
    model.score(X, noise=np.zeros(2))


def test_errors_in_the_place_of_labels_are_refused():
    X, S = np.random.default_rng(0).normal(size=(60, 2)), np.ones((60, 2))
    model = xd.XDGMM(1)
    for call in (model.fit, model.partial_fit, model.fit(X, np.zeros(60), noise=S).score):
        with pytest.raises(ValueError, match=r"give standard deviations as error="):
            call(X, S)


def test_warm_start_goes_on():
    X, S = rows()
    model = XDGMM(3, random_state=0, max_iter=2, warm_start=True, tol=0).fit(X, noise=S)
    first = model.lower_bound_
    assert model.fit(X, noise=S).lower_bound_ > first


def test_names_of_columns_travel():
    import pandas

    X, S = rows()
    model = XDGMM(2, random_state=0, max_iter=2, tol=0).fit(pandas.DataFrame(X, columns=["a", "b"]), noise=S)
    assert list(model.feature_names_in_) == ["a", "b"]
    assert model.mixture_.labels == ("a", "b")


@pytest.mark.slow
def test_grid_search():
    X, _ = rows()
    search = GridSearchCV(XDGMM(random_state=0, max_iter=20, tol=0), {"n_components": [1, 2]}, cv=2).fit(X)
    assert search.best_params_ == {"n_components": 2}


def test_bad_settings_are_refused():
    X, _ = rows()
    with pytest.raises(ValueError, match="method must be one of"):
        XDGMM(method="magic").fit(X)
    with pytest.raises(ValueError, match="reg_covar"):
        XDGMM(reg_covar=-1.0).fit(X)


def test_every_fitted_attribute_of_gaussian_mixture_is_there():
    from sklearn.mixture import GaussianMixture

    X, _ = rows()
    theirs, ours = GaussianMixture(2, random_state=0).fit(X), XDGMM(2, random_state=0, max_iter=5, tol=0).fit(X)
    wanted = [name for name in dir(theirs) if name.endswith("_") and not name.startswith("_")]
    assert [name for name in wanted if not hasattr(ours, name)] == []


@pytest.mark.slow
def test_bounds_and_iterations_are_those_of_the_best_start():
    X, S = rows()
    model = XDGMM(5, random_state=3, n_init=3, max_iter=4, tol=0, init_params="random").fit(X, noise=S)
    assert len(model.history_) == 12
    assert model.n_iter_ == len(model.lower_bounds_) == 4
    ends = [epoch.loglik for epoch in model.history_ if epoch.epoch == 3]
    assert model.lower_bounds_[-1] == max(ends)


def test_batch_size_counts_for_methods_with_a_step():
    X, S = rows()
    settings = {"random_state": 0, "max_iter": 2, "method": xd.EM(step=xd.Decaying(0.1))}
    few, many = (XDGMM(2, batch_size=size, **settings).fit(X, noise=S) for size in (30, 300))
    assert not np.array_equal(few.means_, many.means_)
    with pytest.raises(ValueError, match="batch_size must be"):
        XDGMM(2, batch_size=0, **settings).fit(X)


def test_a_method_has_its_own_prior():
    X, _ = rows()
    with pytest.raises(ValueError, match=r"give prior=.* there"):
        XDGMM(2, method=xd.EM(), prior=xd.Prior(w=1.0)).fit(X)
    with pytest.raises(ValueError, match="is not used"):
        XDGMM(2, method=xd.EM(), reg_covar=0.1).fit(X)


def stream(batches, n=500):
    """Batches of rows of one truth, each with errors of its own, and rows that nobody learns from."""
    truth = xd.Mixture([0.6, 0.4], [[0, 0], [4, 1]], [np.eye(2), [[0.3, 0.2], [0.2, 0.4]]])
    rng = np.random.default_rng(0)
    for batch in range(batches):
        error = rng.uniform(0.1, 1.5, size=(n, 2))
        X = truth.sample(n, seed=batch, error=error)
        X[::7, 1] = np.nan
        yield X, error


@pytest.mark.slow
def test_partial_fit_learns_from_a_stream():
    *seen, (X, error) = stream(31)
    model, scores = XDGMM(2, random_state=0), []
    for rows_, errors in seen:
        scores.append(model.partial_fit(rows_, error=errors).score(X, error=error))
    together, errors = (np.concatenate(parts) for parts in zip(*seen, strict=True))
    whole = XDGMM(2, random_state=0).fit(together, error=errors).score(X, error=error)
    assert whole - scores[-1] < 0.25 * (whole - scores[0])
    assert whole - scores[-1] < 0.003
    assert model.weight_seen_ == 15_000


def test_a_step_is_one_update_of_minibatch_em():
    (X, error), (Y, other) = stream(2)
    model = XDGMM(2, random_state=0, reg_covar=0.0).partial_fit(X, error=error)
    before = model.mixture_
    model.partial_fit(Y, error=other)
    method = xd.EM(step=0.5**0.6, accelerate=False)
    again = xd.fit(Y, mixture=before, error=other, method=method, batch_rows=len(Y), epochs=1, tol=0, moves="none")
    assert np.array_equal(model.means_, again.mixture.means)


def test_the_first_batch_must_be_large_enough():
    with pytest.raises(ValueError, match="the first batch has 19 rows, and 2 components need at least 10 each: 20"):
        XDGMM(2).partial_fit(rows(19)[0])
    assert XDGMM(2, random_state=0).partial_fit(rows(20)[0]).weights_.shape == (2,)


def test_a_later_batch_without_the_errors_of_the_first_is_warned_of():
    (X, error), (Y, _) = stream(2)
    model = XDGMM(2, random_state=0).partial_fit(X, error=error)
    with pytest.warns(UserWarning, match="fitted with errors of column 0, column 1, and these rows have none"):
        model.partial_fit(Y)


def test_weights_have_scikit_learns_name_too():
    X, S = rows()
    weight = np.random.default_rng(1).integers(0, 3, len(X)).astype(float)
    a, b = (XDGMM(1, random_state=0).fit(X, noise=S, **{name: weight}) for name in ("weight", "sample_weight"))
    assert np.array_equal(a.means_, b.means_)
    with pytest.raises(ValueError, match="two names for one thing"):
        XDGMM(1).fit(X, weight=weight, sample_weight=weight)


@pytest.mark.slow
def test_noise_reaches_every_fold_by_metadata_routing():
    import sklearn

    X, S = rows()
    with sklearn.config_context(enable_metadata_routing=True):
        model = XDGMM(random_state=0).set_fit_request(noise=True).set_score_request(noise=True)
        search = GridSearchCV(model, {"n_components": [1, 2]}, cv=2).fit(X, noise=S)
    assert search.best_params_ == {"n_components": 2}


@pytest.mark.slow
def test_the_estimator_chooses_how_many():
    X = np.concatenate([np.random.default_rng(0).normal(m, 1.0, size=(40, 1)) for m in (-6.0, 6.0)])
    assert XDGMM("auto", random_state=0).fit(X).mixture_.k == 2


# Rows of pandas


def of_pandas():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(80, 2)), columns=["a", "b"], index=np.arange(80) + 100)
    error = pd.DataFrame(rng.uniform(0.1, 1, size=(80, 2)), columns=["a", "b"], index=X.index)
    return X, error, pd.Series(rng.uniform(size=80), index=X.index), rng.permutation(80)


def test_what_stands_beside_rows_of_pandas_is_paired_by_its_index():
    X, error, weight, order = of_pandas()
    mixed, model = error.iloc[order], xd.XDGMM(1, random_state=0)
    right = model.fit(X, error=error, weight=weight)
    assert (
        xd.XDGMM(1, random_state=0).fit(X, error=mixed, weight=weight.iloc[order]).means_.tolist()
        == right.means_.tolist()
    )
    assert np.array_equal(right.score_samples(X, error=mixed), right.score_samples(X, error=error))
    assert right.score(X, error=error, sample_weight=weight.iloc[order]) == right.score(X, error=error, weight=weight)
    other = error.reset_index(drop=True)
    for call in (lambda: model.fit(X, error=other), lambda: right.score(X, error=other),
                 lambda: right.predict_proba(X, noise=other), lambda: model.partial_fit(X, error=other),
                 lambda: right.score(X, error=error, weight=weight.reset_index(drop=True))):  # fmt: skip
        with pytest.raises(ValueError, match=r"the index of (error|noise|weight) is not that of the rows"):
            call()


def test_columns_that_are_called_errors_of_others_are_warned_of():
    X, error, _, _ = of_pandas()
    with pytest.warns(UserWarning, match=r"a_error, b_error: called errors of a, b.*X the columns \['a', 'b'\] alone"):
        xd.XDGMM(1).fit(X.join(error.add_suffix("_error")))


def test_draws_of_heavy_tails_have_them():
    """Of a t with 3 degrees of freedom, one in a hundred lies beyond 5.8 widths; of a Gaussian, beyond 2.6."""
    model = XDGMM(1, tails=3.0, random_state=0).fit(rows()[0])
    drawn, _ = model.sample(50_000)
    expected = model.mixture_.sample(50_000, seed=0)
    np.testing.assert_allclose(*(np.quantile(abs(x - model.means_[0]), 0.99, axis=0) for x in (drawn, expected)), 0.1)


def test_criteria_are_of_the_likelihood_that_was_fitted():
    """Given that rows were kept, where they were selected."""
    X, S = rows()
    kept = X[:, 0] > -3
    model = XDGMM(2, selection=xd.Cut(0, above=-3.0), random_state=1).fit(X[kept], noise=S[kept])
    n, m = kept.sum(), model.n_parameters()
    assert model.bic(X[kept], noise=S[kept]) == pytest.approx(-2 * n * model.lower_bound_ + m * np.log(n))
    assert model.aic(X[kept], noise=S[kept]) == pytest.approx(-2 * n * model.lower_bound_ + 2 * m)


def test_what_the_fit_is_told_may_name_columns_of_a_table():
    X, S = rows()
    table, error = (pd.DataFrame(a, columns=["parallax", "mag"]) for a in (X, np.sqrt(S)))
    cut = XDGMM(1, selection=xd.Cut("parallax", above=-9.0), random_state=0).fit(table, error=error)
    assert cut.mixture_.selection.told(cut.mixture_.labels) == "parallax > -9"
    wider = XDGMM(1, inflation=xd.Inflation(by="mag", bins=[0.0], of=["mag"]), random_state=0).fit(table, error=error)
    assert wider.mixture_.inflation.groups == ("mag < 0", "0 <= mag", "mag missing")
    field = xd.Mixture([1.0], [[0.0, 0.0]], [9 * np.eye(2)], labels=["mag", "parallax"])
    with pytest.raises(ValueError, match=r"the background is of \['mag', 'parallax'\] and the data of"):
        XDGMM(1, background=field).fit(table, error=error)
    with pytest.raises(ValueError, match=r"validation is of \['mag', 'parallax'\] and the data of"):
        XDGMM(1).fit(table, validation=table[["mag", "parallax"]])
