"""Extreme deconvolution as Bovy, Hogg & Roweis (2011) print it, equations 16 to 20 and 25: loops, no cleverness."""

import numpy as np


def step(amp, mean, covar, X, S, R, weight, w=0.0, fixed=((), (), ())):
    """One iteration; the average log-likelihood that it met."""
    n, k, d = len(X), len(amp), mean.shape[1]
    q, b, B = np.zeros((n, k)), np.zeros((n, k, d)), np.zeros((n, k, d, d))
    loglik = np.zeros(n)
    for i in range(n):
        density = np.zeros(k)
        for j in range(k):
            T = R[i] @ covar[j] @ R[i].T + S[i]
            inverse, away = np.linalg.inv(T), X[i] - R[i] @ mean[j]
            normal = np.exp(-0.5 * away @ inverse @ away) / np.sqrt(np.linalg.det(2 * np.pi * T))
            density[j] = amp[j] * normal
            b[i, j] = mean[j] + covar[j] @ R[i].T @ inverse @ away
            B[i, j] = covar[j] - covar[j] @ R[i].T @ inverse @ R[i] @ covar[j]
        loglik[i] = np.log(density.sum())
        q[i] = weight[i] * density / density.sum()
    new_amp, new_mean, new_covar = amp.copy(), mean.copy(), covar.copy()
    for j in range(k):
        total = q[:, j].sum()
        if j not in fixed[1]:
            new_mean[j] = q[:, j] @ b[:, j] / total
        away = new_mean[j] - b[:, j]
        sums = np.einsum("i,iab->ab", q[:, j], away[:, :, None] * away[:, None, :] + B[:, j])
        if j not in fixed[2]:
            new_covar[j] = (sums + w * np.eye(d)) / (total + 1) if w else sums / total
    free = [j for j in range(k) if j not in fixed[0]]
    if free:
        new_amp[free] = q[:, free].sum(0) / q[:, free].sum() * (1 - amp[list(fixed[0])].sum())
    return (new_amp, new_mean, new_covar), (weight * loglik).sum() / n


def iterate(amp, mean, covar, X, S, R, weight=None, steps=10, **options):
    """Parameters after some steps, and their average log-likelihood."""
    n, p = X.shape
    R = np.tile(np.eye(p), (n, 1, 1)) if R is None else np.asarray(R)
    S = S[:, :, None] * np.eye(p) if S.ndim == 2 else S
    weight = np.ones(n) if weight is None else weight
    found = amp.copy(), mean.copy(), covar.copy()
    for _ in range(steps):
        found, _ = step(*found, X, S, R, weight, **options)
    return found, step(*found, X, S, R, weight, **options)[1]
