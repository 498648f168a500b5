"""Words mean the same in xd.fit, XDGMM and the command: one resolver makes the plan of all three."""

import numpy as np
import pandas as pd
import pytest

import xdeconv as xd
from xdeconv.fitting import _fit
from xdeconv.fitting.plan import Plan

X = np.random.default_rng(3).normal(size=(300, 2))
ERROR = np.full(X.shape, 0.3)


@pytest.fixture
def plans(monkeypatch) -> list[Plan]:
    """The plans that fits end at; none is carried out."""
    kept: list[Plan] = []

    def stop(plan, *_):
        kept.append(plan)
        raise ValueError("planned")

    monkeypatch.setattr(_fit, "run", stop)
    return kept


def planned(call, plans: list[Plan]) -> Plan:
    with pytest.raises(ValueError, match="planned"):
        call()
    return plans.pop()


def alike(plan: Plan) -> tuple:
    return plan.method, plan.batch_rows, plan.epochs, plan.moves, plan.weak, plan.expected, plan.start, plan.tol


@pytest.mark.parametrize("word", ["auto", "em", "minibatch-em", "sgd"])
def test_the_command_says_what_fit_says(word, plans, tmp_path, call):
    table = pd.DataFrame({"x": X[:, 0], "y": X[:, 1], "x_error": ERROR[:, 0], "y_error": ERROR[:, 1]})
    table.to_parquet(tmp_path / "rows.parquet")
    from_python = planned(lambda: xd.fit(X, 3, error=ERROR, method=word), plans)
    call("fit", tmp_path / "rows.parquet", "-c", "x,y", "-k", 3, "-o", tmp_path / "m.safetensors", "--method", word)
    assert alike(plans.pop()) == alike(from_python)


@pytest.mark.parametrize("word", ["auto", "em", "minibatch-em", "sgd"])
def test_the_estimator_says_what_fit_says(word, plans):
    """But for the rows of a batch and the prior, which have words of its own."""
    batch = None if word in ("auto", "em") else 512
    prior = xd.Prior(w=0.5)
    model = xd.XDGMM(3, method=word, prior=prior, random_state=0)
    of_model = planned(lambda: model.fit(np.tile(X, (2, 1)), error=np.tile(ERROR, (2, 1))), plans)
    of_fit = planned(lambda: xd.fit(X, 3, error=ERROR, method=word, batch_rows=batch), plans)
    assert of_model.method == of_fit.method.with_prior(prior)
    assert (of_model.batch_rows, of_model.epochs, of_model.moves) == (of_fit.batch_rows, of_fit.epochs, of_fit.moves)


def test_em_has_no_batches(plans):
    with pytest.raises(ValueError, match="minibatch-em or sgd"):
        xd.fit(X, 3, error=ERROR, method="em", batch_rows=100)


def test_the_number_of_components_is_chosen_for_the_structure_of_the_fit(monkeypatch):
    seen = []

    def chosen(fit, source, settings):
        seen.append(settings["covariance"])
        return 2, "two"

    monkeypatch.setattr(_fit, "chosen_components", chosen)
    assert xd.fit(X, "auto", error=ERROR, covariance="diagonal", epochs=2).mixture.structure == "diagonal"
    assert seen == ["diagonal"]
