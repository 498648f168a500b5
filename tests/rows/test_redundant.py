"""Rows with more values than latent coordinates: densities and sums against many digits, whatever the noise."""

import mpmath as mp
import numpy as np
import pytest
import torch

import xdeconv as xd
from xdeconv import kernels
from xdeconv.kernels import reference
from xdeconv.rows.batch import Batch

LOG_WEIGHTS = torch.tensor([0.3, 0.7], dtype=torch.float64).log()
MEANS = torch.tensor([[0.0, 1.0], [0.5, -1.0]], dtype=torch.float64)
COVARIANCES = torch.tensor([[[1.0, 0.3], [0.3, 2.0]], [[0.5, 0.0], [0.0, 0.7]]], dtype=torch.float64)
MIXTURE = (LOG_WEIGHTS, MEANS, COVARIANCES)


def rows(noise, p=4, n=12, seed=0):
    """True values seen p times, with noise of a size (correlated), some of them missing."""
    rng = np.random.default_rng(seed)
    R = rng.normal(size=(n, p, 2))
    A = rng.normal(size=(n, p, p))
    S = noise * (A @ A.transpose(0, 2, 1) / p + 0.2 * np.eye(p))
    truth = rng.multivariate_normal(MEANS[0].numpy(), COVARIANCES[0].numpy(), size=n)
    X = np.einsum("npd,nd->np", R, truth) + np.einsum("npq,nq->np", np.linalg.cholesky(S), rng.normal(size=(n, p)))
    X[n // 2, 0] = X[n // 2, 2] = np.nan
    X[n // 3, 1] = np.nan
    X[n // 4, :3] = np.nan  # one value is left: fewer than latent ones
    X[n // 5] = np.nan
    return X, S, R


def density(x, S, R):
    """The log-density of a row, in 60 digits."""
    seen = np.flatnonzero(~np.isnan(x))
    if not len(seen):
        return 0.0
    with mp.workdps(60):
        R, S, x = mp.matrix(R[seen].tolist()), mp.matrix(S[np.ix_(seen, seen)].tolist()), mp.matrix(x[seen].tolist())
        total = mp.mpf(0)
        for log_weight, m, V in zip(LOG_WEIGHTS, MEANS, COVARIANCES, strict=True):
            T = R * mp.matrix(V.tolist()) * R.T + S
            r = x - R * mp.matrix(m.tolist())
            square = (r.T * mp.lu_solve(T, r))[0]
            total += mp.exp(mp.mpf(float(log_weight)) - square / 2) / mp.sqrt(mp.det(2 * mp.pi * T))
        return float(mp.log(total))


@pytest.mark.parametrize("noise", [1.0, 1e-6, 1e-14, 1e-20])
@pytest.mark.parametrize("kind", ["full", "diagonal", "shared"])
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_precise_measurements_of_the_same_thing(noise, kind, backend):
    X, S, R = rows(noise)
    if kind == "diagonal":
        S = np.einsum("naa->na", S)
    elif kind == "shared":
        S = S[:1]
    dense = {"full": S, "shared": np.broadcast_to(S, (len(X), *S.shape[1:])), "diagonal": S[..., None] * np.eye(4)}[
        kind
    ]
    batch = Batch.from_arrays(X, noise=S, projection=R)
    found = kernels.log_prob(*MIXTURE, batch, xd.Options(backend=backend)).numpy()
    right = [density(*row) for row in zip(X, dense, R, strict=True)]
    rounding = 100 * np.finfo(float).eps / noise**0.5  # what a last bit of the values changes, times ten residuals
    np.testing.assert_allclose(found, right, rtol=1e-12, atol=1e-12 + rounding)


def test_sums_are_those_of_the_rows_as_they_were():
    X, S, R = rows(0.5)
    plain = Batch(torch.from_numpy(X.T.copy()), _packed(S), torch.from_numpy(R.transpose(1, 2, 0).copy()), missing=True)
    one, other = (reference.accumulate(*MIXTURE, batch) for batch in (plain, Batch.from_arrays(X, S, R)))
    torch.testing.assert_close(one.packed, other.packed, rtol=1e-10, atol=1e-10)


def test_noise_that_is_nearly_singular_leaves_rows_as_they_are():
    rng = np.random.default_rng(1)
    X, R = rng.normal(size=(5, 3)), rng.normal(size=(5, 3, 2))
    S = np.ones((5, 3, 3)) + 1e-12 * np.eye(3)
    assert np.array_equal(Batch.from_arrays(X, S, R).x.T, X)
    assert np.array_equal(Batch.from_arrays(X, projection=R).x.T, X)


def test_a_fit_and_its_posterior_take_such_rows():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(400, 1)) * 2 + 1
    X = truth + rng.normal(size=(400, 2)) * 1e-7
    R = np.ones((400, 2, 1))
    result = xd.fit(X, 1, noise=np.full((400, 2), 1e-14), projection=R)
    assert result.mixture.means[0, 0] == pytest.approx(truth.mean(), abs=1e-6)
    assert result.mixture.covariances[0, 0, 0] == pytest.approx(truth.var(), rel=1e-6)
    posterior = result.mixture.posterior(X, noise=np.full((400, 2), 1e-14), projection=R)
    np.testing.assert_allclose(posterior.mean()[:, 0], X.mean(1), atol=1e-12)


def _packed(S):
    a, b = np.tril_indices(S.shape[1])
    return torch.from_numpy(S[:, a, b].T.copy())
