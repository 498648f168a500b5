"""Questions on a device and in a number type: the same answers, in order, by any number of threads."""

import numpy as np
import pytest
import torch
from tests.catalogues import FEATURES, arrow_table, gaia_like

import xdeconv as xd
from xdeconv.mixture import computing
from xdeconv.system import threads as workers


@pytest.fixture(scope="module")
def rows():
    return arrow_table(gaia_like(3000, seed=2))


@pytest.fixture(scope="module")
def mixture(rows):
    """Far from 0, and narrow in some coordinates: float32 cannot hold it without a frame."""
    rng = np.random.default_rng(0)
    batch = xd.open(rows, FEATURES).load().batch
    x = batch.x.T.nan_to_num(0.0).numpy()
    means = x[rng.integers(len(x), size=5)]
    V = np.tile(np.diag([9.0, 9.0, 1.0, 9.0, 9.0, 0.1, 4.0]), (5, 1, 1))
    return xd.Mixture(
        np.full(5, 0.2), means, V, labels=FEATURES, units=("deg", "deg", "mas", "mas/yr", "mas/yr", "mag", "mag")
    )


QUESTIONS = {
    "log_prob": lambda m, X, **w: m.log_prob(X, **w),
    "score": lambda m, X, **w: m.score(X, **w),
    "responsibilities": lambda m, X, **w: m.responsibilities(X, **w),
    "mean": lambda m, X, **w: m.posterior(X, **w).mean(),
    "covariance": lambda m, X, **w: m.posterior(X, **w).covariance(),
    "quantile": lambda m, X, **w: m.posterior(X, **w).quantile(0.3),
    "weights": lambda m, X, **w: m.posterior(X, **w).weights,
    "component_tail": lambda m, X, **w: m.component_tail(X, **w),
    "predict_proba": lambda m, X, **w: xd.Classifier({"a": m, "b": m}, {"a": 2, "b": 1}).predict_proba(X, **w),
}


@pytest.mark.sampled
@pytest.mark.parametrize("question", QUESTIONS)
def test_float32_is_computed_in_a_frame_that_suits_it(rows, mixture, question):
    ask = QUESTIONS[question]
    exact, single = ask(mixture, rows), ask(mixture, rows, device="cpu", dtype="float32")
    assert np.asarray(single).dtype == np.float64
    np.testing.assert_allclose(single, exact, rtol=3e-4, atol=3e-5 * max(1.0, float(np.abs(exact).max())))
    assert not np.array_equal(single, exact)  # it was another number type
    np.testing.assert_array_equal(ask(mixture, rows, device="cpu", dtype=torch.float64), exact)


@pytest.mark.sampled
@pytest.mark.parametrize("question", QUESTIONS)
def test_answers_do_not_depend_on_the_number_of_threads(rows, mixture, question, monkeypatch, tmp_path):
    import pyarrow.parquet as pq

    path = tmp_path / "rows.parquet"
    pq.write_table(rows, path, row_group_size=500)
    monkeypatch.setattr("xdeconv.catalog.stream.PASS_ROWS", {"cpu": 500})
    monkeypatch.setattr("xdeconv.mixture.posterior.CHUNK_NUMBERS", 5 * 49 * 700)
    found = []
    for many in (1, 2, 4):
        monkeypatch.setattr(workers, "threads", lambda many=many: many)
        found.append(QUESTIONS[question](mixture, xd.open(path, FEATURES)))
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)
    monkeypatch.undo()
    np.testing.assert_allclose(found[0], QUESTIONS[question](mixture, rows), rtol=1e-9, atol=1e-12)


def test_words_are_checked(rows, mixture):
    with pytest.raises(ValueError, match="device must be cpu or cuda, got 'tpu'"):
        mixture.log_prob(rows, device="tpu")
    with pytest.raises(ValueError, match="dtype must be float32 or float64, got 'float16'"):
        mixture.posterior(rows, dtype="float16")


def test_a_gpu_is_taken_where_there_is_much_to_do(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert computing.worthwhile(None, lambda: 10**5, 99).type == "cpu"
    assert computing.worthwhile(None, lambda: 10**5, 100).type == "cuda"
    assert computing.worthwhile("cpu", lambda: 10**9, 100).type == "cpu"
    assert computing.worthwhile("cuda", lambda: 1, 1).type == "cuda"


def test_a_row_without_a_density_is_named_whichever_thread_meets_it(tmp_path, monkeypatch):
    import pyarrow as pa
    import pyarrow.parquet as pq

    errors = np.full(1000, 0.1)
    errors[[777, 800]] = 0.0
    pq.write_table(pa.table({"x": np.zeros(1000), "x_error": errors}), tmp_path / "x.parquet", row_group_size=100)
    monkeypatch.setattr("xdeconv.catalog.stream.PASS_ROWS", {"cpu": 100})
    flat = xd.Mixture([1.0], [[0.0]], [[[0.0]]], labels=["x"])
    for many in (1, 3):
        monkeypatch.setattr(workers, "threads", lambda many=many: many)
        with pytest.raises(ValueError, match="row 777 has no density"):
            flat.score(str(tmp_path / "x.parquet"))
