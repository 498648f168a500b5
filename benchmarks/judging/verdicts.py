"""How often `xd.check` says what is wrong, of errors and models that are wrong in a known way.

Truths of one to four components in two dimensions, rows with errors of 0.1 to 2 widths. A verdict is right if it names
what is wrong and nothing else; of a mixture that was fitted with errors that are too small, if it names the errors: its
widths are wrong as well then.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import xdeconv as xd
from benchmarks.common.results import table as markdown

ROWS, D = 4000, 2
SMALL, NARROW, WIDE = 1.4, 0.8, 1.25


@dataclass(frozen=True)
class Case:
    """Factors on errors and on the model's widths, whether the model is fitted, and words of a right verdict."""

    errors: float = 1.0
    widths: float = 1.0
    fitted: bool = False
    words: str = "right"
    never: str = "too"


CASES = {
    "all right": Case(),
    "all right, fitted to as many other rows": Case(fitted=True),
    f"errors {SMALL} x too small": Case(1 / SMALL, words="errors are too small", never="model"),
    "the same, fitted with these errors": Case(1 / SMALL, fitted=True, words="errors are too small", never="right"),
    f"widths x {NARROW}": Case(widths=NARROW, words="the model is too narrow", never="errors"),
    f"widths x {WIDE}": Case(widths=WIDE, words="the model is too wide", never="errors"),
}


def truth(seed: int) -> xd.Mixture:
    """One to four components of width about 1, some widths apart."""
    rng = np.random.default_rng([seed, 7])
    k = int(rng.integers(1, 5))
    A = rng.normal(size=(k, D, D + 2))
    return xd.Mixture(rng.dirichlet(np.full(k, 5.0)), 3.0 * rng.normal(size=(k, D)), A @ A.transpose(0, 2, 1) / (D + 2))


def judged(case: Case, seed: int, n: int = ROWS) -> xd.Check:
    """The verdicts on one data set."""
    true, rng = truth(seed), np.random.default_rng([seed, 8])
    error = rng.uniform(0.1, 2.0, size=(2, n, D))
    rows = [true.sample(n, seed=rng, error=each) for each in error]
    model = xd.Mixture(true.weights, true.means, case.widths**2 * true.covariances)
    if case.fitted:
        model = xd.fit(rows[1], true.k, error=case.errors * error[1]).mixture
    return xd.check(rows[0], model, error=case.errors * error[0])


def right(case: Case, text: str) -> bool:
    """Whether a verdict says what is wrong."""
    return case.words in text and case.never not in text


def line(name: str, sets: int) -> list[str]:
    """How often verdicts of a case are right, the factor on errors that they find, and a wrong one."""
    case = CASES[name]
    found = [verdict for seed in range(sets) for verdict in judged(case, seed).verdicts]
    wrong = [verdict.text for verdict in found if not right(case, verdict.text)]
    factors = [verdict.errors.factor for verdict in found if verdict.errors is not None]
    share = f"{len(found) - len(wrong)} of {len(found)}"
    return [name, share, f"{np.mean(factors):.2f} +- {np.std(factors):.2f}", wrong[0] if wrong else ""]


def table(sets: int) -> str:
    """All cases."""
    head = ["what is wrong", "right verdicts", "factor found on errors (mean, scatter)", "the first wrong verdict"]
    return markdown(head, [line(name, sets) for name in CASES])
