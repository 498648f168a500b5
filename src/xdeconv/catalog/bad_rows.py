"""Rows that cannot be right: negative or unknown errors of observed values, impossible correlations, infinities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..rows.batch import packed_size
from .evaluating import Columns
from .recipe import Evaluated, Recipe, floats

Array = np.ndarray
ROUNDING = 1e-6  # by which a correlation stored in float32 may exceed 1
SLACK = 1e-5  # of the variance, by which a pivot may be negative: correlations are often stored in float32


@dataclass(frozen=True)
class Problem:
    """The first bad row of a kind: where, which column, what, and how many such rows."""

    row: int
    column: str
    what: str
    count: int


def bad_rows(recipe: Recipe, columns: Columns, x: Array, noise: Array | None) -> tuple[Array, Problem | None]:
    """Which rows (n,) are bad, and the first problem found."""
    evaluated = recipe.evaluate(columns)
    bad = np.zeros(x.shape[1], dtype=bool)
    first: Problem | None = None
    for column, what, rows in (
        *_values(recipe, columns, x),
        *_errors(recipe, evaluated),
        *_correlations(recipe, evaluated),
    ):
        if rows.any() and first is None:
            first = Problem(int(rows.argmax()), column, what, int(rows.sum()))
        bad |= rows
    if noise is not None and recipe.kind == "full":
        rows = _indefinite(noise, len(x)) & ~bad
        if rows.any() and first is None:
            what = "have correlations that no covariance can have (not positive semi-definite)"
            first = Problem(int(rows.argmax()), "errors", what, int(rows.sum()))
        bad |= rows
    return bad, first


def undefined(recipe: Recipe, columns: Columns, x: Array) -> bool:
    """Whether some row has a derived value that is not defined, or an impossible weight or log-prior."""
    if not (recipe.transforms or recipe.weight or recipe.log_prior):
        return False
    return any(bool(rows.any()) for _, _, rows in _values(recipe, columns, x))


def _values(recipe: Recipe, columns: Columns, x: Array) -> list[tuple[str, str, Array]]:
    problems = []
    made = {name: t for t in recipe.transforms for name in t.outputs}
    for a, name in enumerate(recipe.features):
        problems.append((name, "is infinite", np.isinf(x[a])))
        if name in made and made[name].needs(name):
            known = [~np.isnan(recipe.quantities[c].value(columns)) for c in made[name].needs(name)]
            undefined = np.isnan(x[a]) & np.logical_and.reduce(known)
            problems.append((name, "is not defined, although what it is made of is observed", undefined))
    if recipe.weight:
        w = floats(columns[recipe.weight], recipe.weight)
        problems.append((recipe.weight, "is not a weight: negative or missing", ~(w >= 0) | np.isinf(w)))
    return problems + _priors(recipe, columns)


def _priors(recipe: Recipe, columns: Columns) -> list[tuple[str, str, Array]]:
    """Log-priors that are missing or infinite, and rows that no component may have."""
    if not recipe.log_prior:
        return []
    table = np.stack([floats(columns[name], name) for name in recipe.log_prior])
    problems = [(name, "is not a log-prior: missing or +inf", np.isnan(line) | (line == np.inf))
             for name, line in zip(recipe.log_prior, table, strict=True)]  # fmt: skip
    return [*problems, (", ".join(recipe.log_prior), "are -inf for every component", np.isneginf(table).all(axis=0))]


def _errors(recipe: Recipe, evaluated: Evaluated) -> list[tuple[str, str, Array]]:
    problems = []
    observed = ~np.isnan(np.stack(evaluated.x))
    users = _users(evaluated)
    for source, features in users.items():
        seen = observed[features].any(axis=0)
        sd = np.broadcast_to(evaluated.deviations[source], seen.shape)
        names = recipe.deviations[source].names
        column = names[0] if names else source
        value = recipe.features[features[0]]
        problems.append((column, "is negative", seen & (sd < 0)))
        problems.append((column, f"is missing or infinite although {value} is observed", seen & ~np.isfinite(sd)))
    return problems


def _users(evaluated: Evaluated) -> dict[str, list[int]]:
    """The features that each noise source acts on."""
    users: dict[str, list[int]] = {}
    for a, slopes in enumerate(evaluated.slopes):
        for source in slopes:
            users.setdefault(source, []).append(a)
    return users


def _correlations(recipe: Recipe, evaluated: Evaluated) -> list[tuple[str, str, Array]]:
    problems = []
    observed = ~np.isnan(np.stack(evaluated.x))
    users = _users(evaluated)
    for (s, t), r in evaluated.correlations.items():
        if s not in users or t not in users:
            continue
        seen = observed[users[s]].any(axis=0) & observed[users[t]].any(axis=0)
        column = recipe.correlations[s, t]
        wrong = seen & ~(np.abs(np.broadcast_to(r, seen.shape)) <= 1 + ROUNDING)
        problems.append((str(column), f"is not a correlation although {s} and {t} are observed", wrong))
    return problems


def _indefinite(noise: Array, p: int) -> Array:
    """Rows whose packed covariance has a negative pivot, by a Cholesky factorisation of all rows at once."""
    pivots: dict[tuple[int, int], Array] = {}
    bad = np.zeros(noise.shape[1], dtype=bool)
    with np.errstate(all="ignore"):
        for a in range(p):
            for b in range(a + 1):
                value = noise[packed_size(a) + b].copy()
                for c in range(b):
                    value -= pivots[a, c] * pivots[b, c]
                if a == b:
                    slack = SLACK * noise[packed_size(a) + a]
                    bad |= value < -slack
                    pivots[a, a] = np.sqrt(np.maximum(value, 0.0))
                else:
                    root = pivots[b, b]
                    pivots[a, b] = np.where(root > 0, value / np.where(root > 0, root, 1.0), 0.0)
    return bad
