"""covariance= in fit, in the estimator and in the command: every structure through a whole fit, saved and counted."""

import numpy as np
import pytest

import xdeconv as xd
from xdeconv.methods.structures import as_structure

WORDS = ["full", "tied", "diagonal", "spherical", "low-rank:1"]


def rows(n=900, d=5, seed=0):
    """Two factor analysers of rank 1, with errors of their own and gaps."""
    F = np.random.default_rng(9).normal(size=(2, d))
    rng = np.random.default_rng(seed)
    z = rng.integers(2, size=n)
    v = np.where(z[:, None] == 0, -2.0, 2.0) + F[z] * rng.normal(size=(n, 1)) + 0.5 * rng.normal(size=(n, d))
    error = rng.uniform(0.1, 0.6, size=(n, d))
    X = v + error * rng.normal(size=(n, d))
    X[rng.uniform(size=X.shape) < 0.1] = np.nan
    return X * [1.0, 10.0, 0.1, 1.0, 3.0], error * [1.0, 10.0, 0.1, 1.0, 3.0]


X, ERROR = rows()


def is_of(word: str, V: np.ndarray) -> bool:
    import torch

    found = as_structure(word).nearest(torch.from_numpy(V.copy()), torch.ones(len(V), dtype=torch.float64)).V.numpy()
    return np.allclose(found, V, rtol=1e-5 if "rank" in word else 1e-12, atol=1e-5 if "rank" in word else 0.0)


@pytest.mark.sampled
@pytest.mark.parametrize("word", WORDS)
def test_a_whole_fit_has_the_structure(word, tmp_path):
    result = xd.fit(X, 2, error=ERROR, covariance=word)
    assert result.converged
    assert result.mixture.structure == word
    assert is_of(word, result.mixture.covariances)
    result.mixture.save(tmp_path / "m.safetensors")
    again = xd.load(tmp_path / "m.safetensors")
    assert (again.structure, again.n_parameters) == (word, result.mixture.n_parameters)
    further = xd.fit(X, mixture=again, error=ERROR)  # of the structure that the model remembers
    assert further.mixture.structure == word
    assert further.loglik == pytest.approx(result.loglik, abs=2e-4)
    assert result.mixture.marginal([0, 2]).structure == "full"
    assert result.mixture.condition({1: 0.0}).structure == "full"


@pytest.mark.slow
def test_the_right_structure_wins_on_rows_held_out():
    held_out = dict(zip(("X", "error"), rows(seed=1, n=3000), strict=True))
    scores = {}
    for word in WORDS:
        scores[word] = xd.fit(X, 2, error=ERROR, covariance=word, validation=held_out).validation
    assert max(scores, key=scores.get) == "low-rank:1"
    assert scores["low-rank:1"] > scores["diagonal"] > scores["spherical"]


@pytest.mark.slow
@pytest.mark.parametrize("word", WORDS[1:])
@pytest.mark.parametrize("method", [None, xd.SGD()])
def test_batches(word, method):
    whole = xd.fit(X, 2, error=ERROR, covariance=word).loglik
    result = xd.fit(X, 2, error=ERROR, covariance=word, method=method, batch_rows=100, epochs=30)
    assert is_of(word, result.mixture.covariances)
    assert result.loglik == pytest.approx(whole, abs=0.05)


def test_parameters_are_counted():
    """One covariance has d (d + 1) / 2 numbers, factors r d - r (r - 1) / 2 + d of them."""
    V = np.eye(5)[None].repeat(3, 0)
    counts = {w: xd.Mixture(np.ones(3) / 3, np.zeros((3, 5)), V, structure=w).n_parameters for w in WORDS}
    assert counts == {"full": 62, "tied": 32, "diagonal": 32, "spherical": 20, "low-rank:1": 47}
    for word, sklearns in (("full", "full"), ("tied", "tied"), ("diagonal", "diag"), ("spherical", "spherical")):
        theirs = xd.Mixture(np.ones(3) / 3, np.zeros((3, 5)), V, structure=word).to_sklearn()
        assert theirs.covariance_type == sklearns
        assert theirs._n_parameters() == counts[word]


def test_bic_counts_them():
    pick = xd.select(X, [1, 2], "bic", error=ERROR, covariance="diagonal")
    record = pick.table[1]
    n = pick.result.mixture.n_parameters
    assert n == 2 * (1 + 5 + 5) - 1
    assert record.score == pytest.approx(-2 * len(X) * pick.result.loglik + n * np.log(len(X)), rel=1e-4)


@pytest.mark.slow
def test_resume_gives_the_same_bits(tmp_path):
    for word in WORDS[1:]:
        path = tmp_path / f"{word[:4]}.checkpoint"
        whole = xd.fit(X, 2, error=ERROR, covariance=word, moves="none", epochs=20, tol=0)
        xd.fit(X, 2, error=ERROR, covariance=word, moves="none", epochs=11, tol=0, checkpoint=path)
        resumed = xd.fit(
            X, 2, error=ERROR, covariance=word, moves="none", epochs=20, tol=0,
            checkpoint=xd.Checkpoint(path, resume=True),
        )  # fmt: skip
        np.testing.assert_array_equal(resumed.mixture.covariances, whole.mixture.covariances)
        with pytest.raises(ValueError, match="belongs to another fit"):
            xd.fit(X, 2, error=ERROR, moves="none", epochs=20, tol=0, checkpoint=xd.Checkpoint(path, resume=True))


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
def test_the_estimator_has_scikit_learns_types(kind):
    model = xd.XDGMM(2, covariance_type=kind, random_state=0).fit(X, error=ERROR)
    shapes = {"full": (2, 5, 5), "tied": (5, 5), "diag": (2, 5), "spherical": (2,)}
    for name in ("covariances_", "precisions_", "precisions_cholesky_"):
        assert getattr(model, name).shape == shapes[kind]
    theirs = model.mixture_.to_sklearn()
    complete = np.nan_to_num(X)
    np.testing.assert_allclose(theirs.score_samples(complete), model.score_samples(complete, error=np.zeros(5)))
    back = xd.Mixture.from_sklearn(model)
    np.testing.assert_allclose(back.covariances, model.mixture_.covariances)
    assert back.structure == model.mixture_.structure
    assert model.bic(X, error=ERROR) > 0


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
def test_without_noise_it_ends_where_scikit_learn_does(kind):
    from sklearn.mixture import GaussianMixture

    rng = np.random.default_rng(4)
    Y = np.concatenate([rng.normal(m, s, size=(300, 3)) for m, s in ((-4, 1), (4, 2))]) @ rng.normal(size=(3, 3))
    theirs = GaussianMixture(2, covariance_type=kind, tol=1e-9, max_iter=2000, reg_covar=0, random_state=0).fit(Y)
    ours = xd.XDGMM(2, covariance_type=kind, random_state=0, reg_covar=0).fit(Y)
    assert ours.score(Y, error=np.zeros(3)) == pytest.approx(theirs.score(Y), abs=2e-4)


def test_held_coordinates_of_means_in_a_fit():
    start = xd.fit(X, 2, error=ERROR).mixture
    mask = [[True, False, False, False, True], [False] * 5]
    result = xd.fit(X, mixture=start, error=ERROR, method=xd.EM(fixed=xd.Fixed(means=mask)))
    np.testing.assert_allclose(result.mixture.means[0, [0, 4]], start.means[0, [0, 4]], rtol=1e-12)


def test_the_command(tmp_path, call):
    import pandas

    table = pandas.DataFrame(X, columns=list("abcde"))
    for i, name in enumerate("abcde"):
        table[f"{name}_error"] = ERROR[:, i]
    table.to_parquet(tmp_path / "t.parquet")
    model = tmp_path / "m.safetensors"
    code, _, _ = call(
        "fit", tmp_path / "t.parquet", "-c", "a,b,c,d,e", "-k", 2, "--covariance", "low-rank:1", "-o", model
    )
    assert code == 0
    assert xd.load(model).structure == "low-rank:1"
    assert "covariances: low-rank:1" in call("info", model)[1]
    words = ["-c", "a,b", "-k", 2, "--covariance", "low-rank:2", "-o", tmp_path / "n.safetensors"]
    code, _, err = call("fit", tmp_path / "t.parquet", *words)
    assert code == 1
    assert "LowRank(2) needs more than 2 dimensions" in err


# What cannot be


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"covariance": "round"}, "covariance must be one of full, tied, diagonal, spherical"),
        ({"covariance": xd.LowRank(5)}, r"LowRank\(5\) needs more than 5 dimensions and there are 5"),
        ({"covariance": "tied", "method": xd.EM(covariance="diagonal")}, "'tied' and the method's 'diagonal'"),
        ({"covariance": "tied", "method": xd.EM(fixed=xd.Fixed(covariances=[0]))}, "hold all of them or none"),
        ({"method": xd.EM(fixed=xd.Fixed(means=np.ones((2, 4), bool)))}, r"shape \(2, 4\) for means \(2, 5\)"),
    ],
)
def test_bad_input_is_refused(words, message):
    with pytest.raises(ValueError, match=message):
        xd.fit(X, 2, error=ERROR, **words)


def test_a_held_covariance_that_is_not_of_the_structure_is_refused():
    start = xd.fit(X, 2, error=ERROR).mixture
    with pytest.raises(ValueError, match="component 0 is held and is not diagonal"):
        xd.fit(X, mixture=start, error=ERROR, covariance="diagonal", method=xd.EM(fixed=xd.Fixed(covariances=True)))


def test_dimensions_beyond_the_memory_are_refused():
    with pytest.raises(MemoryError, match=r"a mixture of 500 components in 4000 dimensions.*fewer components"):
        xd.fit(np.zeros((2, 4000)), 500, noise=np.ones(4000))
