"""Arithmetic of updates in NumPy, against its definition."""

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits

from xdeconv.kernels.stats import Stats
from xdeconv.methods import em
from xdeconv.methods.lbfgs import direction_of
from xdeconv.methods.step import step_of
from xdeconv.methods.structures.relative import covariances_at, gradient_at
from xdeconv.system.threads import small_algebra


def sums(k, d, rng):
    """Covariances of scales 1e-3 to 1e3, and sums over some rows that components might have."""
    A = torch.from_numpy(rng.normal(size=(k, d, d)) + 2 * np.eye(d)) * 10.0 ** torch.from_numpy(
        rng.uniform(-3, 3, (k, 1, 1))
    )
    q = torch.from_numpy(rng.uniform(5, 50, k))
    inverse = torch.linalg.inv(A)
    w = torch.from_numpy(rng.normal(size=(k, d, 40)))
    G = inverse.mT @ ((w @ w.mT / 40 - torch.eye(d)) * q[:, None, None]) @ inverse
    g = 0.3 * (inverse.mT @ torch.from_numpy(rng.normal(size=(k, d, 1))) * q[:, None, None])[..., 0]
    return A @ A.mT, q, g, G


def defined(V, share, q, g, G, monkeypatch):
    """The step as torch computes it."""
    stats = Stats(torch.cat([torch.zeros(2, dtype=torch.float64), q, g.flatten(), G.flatten()]), *g.shape)
    with monkeypatch.context() as patched:
        patched.setattr(em, "takes", lambda _: False)
        return em.moved_in_frame(V, share, stats, None)


@pytest.mark.parametrize(("k", "d"), [(1, 1), (5, 2), (9, 7), (3, 33)])
def test_a_step_is_what_torch_makes_of_it(k, d, monkeypatch):
    V, q, g, G = sums(k, d, np.random.default_rng(d))
    ours, theirs = step_of(V, 1 / q, g, G), defined(V, 1 / q, q, g, G, monkeypatch)
    spread = V.diagonal(dim1=1, dim2=2).sqrt()
    assert ((ours[0] - theirs[0]).abs() / spread).max() < 1e-11
    assert ((ours[1] - theirs[1]).abs() / spread[:, :, None] / spread[:, None, :]).max() < 1e-9


@pytest.mark.parametrize("d", [20, 33, 100, 300])
def test_bits_do_not_depend_on_the_number_of_threads(d):
    V, q, g, G = sums(3, d, np.random.default_rng(d))
    entries, least = (torch.full(shape, value, dtype=torch.float64)
                      for shape, value in (((3, d * (d + 1) // 2), 0.0), ((3, d), 1e-9)))  # fmt: skip
    B = torch.linalg.cholesky(V)
    answers = []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"), small_algebra():
            answers.append(
                (*step_of(V, 1 / q, g, G), covariances_at(B, entries, least), gradient_at(B, entries, least, G))
            )
    assert all(torch.equal(a, b) for a, b in zip(*answers, strict=True))


def test_a_step_of_singular_dead_and_failed_components(monkeypatch):
    V, q, g, G = sums(4, 3, np.random.default_rng(0))
    V[0] = torch.outer(V[0, 0], V[0, 0])  # has no factor
    share = 1 / q
    share[1] = 0.0  # has no rows
    V[2, 0, 0] = torch.nan
    nothing = torch.eye(3, dtype=torch.float64)  # I - I is what rounding makes of it
    L = torch.linalg.cholesky(V[3])
    G[3], g[3] = torch.linalg.inv(L).mT @ (-nothing / share[3]) @ torch.linalg.inv(L), 0.0
    (delta, moved), (delta_too, moved_too) = step_of(V, share, g, G), defined(V, share, q, g, G, monkeypatch)
    torch.testing.assert_close(moved[0], moved_too[0], rtol=1e-9, atol=0)
    torch.testing.assert_close(delta[0], delta_too[0], rtol=1e-9, atol=0)
    assert torch.equal(moved[1], V[1])
    assert not delta[1].any()
    assert moved[2].isnan().any()
    assert (moved[3].abs() < 1e-9 * V[3].abs().max()).all()


def test_the_direction_after_as_many_steps_as_dimensions_is_newtons():
    rng = np.random.default_rng(3)
    A = rng.normal(size=(6, 6))
    H = torch.from_numpy(A @ A.T / 60)  # below the information of complete data, which is 1
    x, steps, changes = torch.from_numpy(rng.normal(size=6)), [], []
    for _ in range(6):  # exact searches along the direction: conjugate gradients
        gradient = -H @ x
        stacked = (torch.stack(steps), torch.stack(changes)) if steps else None
        direction = gradient if stacked is None else direction_of(gradient, *stacked)[0]
        step = float(gradient @ direction) / float(direction @ H @ direction) * direction
        steps.append(step)
        changes.append(H @ step)
        x = x + step
    assert x.abs().max() < 1e-9
    probe = torch.from_numpy(rng.normal(size=6))
    found, flattest = direction_of(probe, torch.stack(steps), torch.stack(changes))
    torch.testing.assert_close(found, torch.linalg.solve(H, probe), rtol=1e-6, atol=0)
    assert flattest == pytest.approx(max(float(s @ s) / float(s @ y) for s, y in zip(steps, changes, strict=True)))


def test_the_gradient_on_relative_factors_is_that_of_autograd():
    rng, k, d = np.random.default_rng(5), 3, 4
    B, G = (torch.from_numpy(rng.normal(size=(k, d, d))) for _ in range(2))
    G, entries = G + G.mT, torch.from_numpy(rng.normal(size=(k, 10)) / 3).requires_grad_()
    a, b = torch.tril_indices(d, d)
    least = torch.full((k, d), 0.05, dtype=torch.float64)
    with torch.no_grad():
        entries[0, a == b] = -9.0  # widths below the least, which hold no more of their logarithms
    C = torch.zeros(k, d, d, dtype=torch.float64)
    C = C.index_put((torch.arange(k)[:, None], a, b), torch.where(a == b, entries.exp().clamp(min=0.05), entries))
    V = B @ C @ C.mT @ B.mT
    (V * G / 2).sum().backward()
    torch.testing.assert_close(covariances_at(B, entries, least), V.detach())
    torch.testing.assert_close(gradient_at(B, entries, least, G), entries.grad)


def test_what_fails_is_nan_without_a_warning():
    k, d = 2, 3
    V = torch.eye(d, dtype=torch.float64).expand(k, d, d).clone()
    V[1, 0, 0] = torch.inf
    delta, moved = step_of(V, torch.ones(k, dtype=torch.float64), V[:, 0], V)
    assert moved[0].isfinite().all()
    assert delta[0].isfinite().all()
    assert not moved[1].isfinite().all()
    entries, least = torch.full((k, 6), 800.0, dtype=torch.float64), torch.zeros(k, d, dtype=torch.float64)
    assert not covariances_at(V, entries, least).isfinite().any()
    assert not gradient_at(V, entries, least, V).isfinite().all()
    nothing = torch.zeros(1, 4, dtype=torch.float64)  # no curvature was seen along this step
    assert direction_of(torch.ones(4, dtype=torch.float64), nothing, nothing)[0].isnan().all()
