"""What was given and what is wanted: calls that cannot be meant are refused with both."""

import logging

import numpy as np
import pytest

import xdeconv as xd
from xdeconv.system.files import save_tensors

X = np.random.default_rng(0).normal(size=(80, 2))
S = np.full((80, 2), 0.1)
MIXTURE = xd.Mixture([0.5, 0.5], [[0.0, 0.0], [1.0, 1.0]], [np.eye(2), np.eye(2)], labels=["a", "b"])


def fit(**arguments):
    return xd.fit(X, 2, noise=S, epochs=2, **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"validation": 1}, "a fraction between 0 and 1, got 1"),
        ({"validation": True}, "a fraction between 0 and 1, got True"),
        ({"validation": "x"}, "got 'x'"),
        ({"validation": (X, S)}, r"validation is a tuple of arrays: give dict\(X=..., noise=...\)"),
        ({"validation": [X, S]}, "validation is a list of arrays"),
        ({"validation": {"noise": S}}, r"validation has \['noise'\] and no X"),
        ({"validation": {"X": X, "sigma": S}}, r"\['sigma'\], which is none of"),
        ({"start": MIXTURE}, "to start from one, give mixture="),
        ({"start": 5}, "start must be kmeans, kmeans"),
        ({"tol": float("nan")}, "tol must be a number of at least 0, got nan"),
        ({"tol": -1.0}, "tol must be a number of at least 0, got -1.0"),
        ({"tol": "small"}, "tol must be"),
        ({"patience": 0, "validation": 0.1}, "patience must be a whole number of at least 1, got 0"),
        ({"checkpoint": 3}, "path must be its name, got 3"),
        ({"options": "cpu"}, r"options must be an xd.Options\(...\), got 'cpu'"),
        ({"device": "gpu"}, "device must be cpu or cuda, got 'gpu'"),
        ({"moves": 3}, "moves must be one of"),
    ],
)
def test_settings_of_fit(arguments, message):
    with pytest.raises(ValueError, match=message):
        fit(**arguments)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: xd.EM(step="a"), r"step must lie in \(0, 1\], or be a schedule .*, got 'a'"),
        (lambda: xd.EM(step=2.0), r"step must lie in \(0, 1\]"),
        (lambda: xd.EM(prior=3), r"prior must be an xd.Prior\(...\), got 3"),
        (lambda: xd.EM(fixed=[0]), r"fixed must be an xd.Fixed\(...\), got \[0\]"),
        (lambda: xd.EM(inflate=-1.0), "inflate must be a finite number of at least 0"),
        (lambda: xd.SGD(rate=0), "rate must be a positive number, .*, got 0"),
        (lambda: xd.SGD(rate=float("nan")), "rate must be a positive number, .*, got nan"),
        (lambda: xd.SGD(trace_penalty=-1), "trace_penalty must be a finite number of at least 0"),
        (lambda: xd.Options(backend="fast"), "backend must be one of"),
        (lambda: xd.Checkpoint("a", every=-1), "seconds between saves of a checkpoint, must be at least 0, got -1"),
        (lambda: xd.Moves(rounds=-1), "rounds of Moves must be a number of at least 0, got -1"),
        (lambda: xd.Moves(criterion="best"), "criterion must be gain or bovy"),
    ],
)
def test_settings_of_methods(call, message):
    with pytest.raises(ValueError, match=message):
        call()


WIDE = xd.Batch.from_arrays(np.zeros((5, 3)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: MIXTURE.posterior(WIDE), "the Batch has 3 columns and the mixture 2 dimensions"),
        (lambda: MIXTURE.log_prob(WIDE), "the Batch has 3 columns and the mixture 2 dimensions"),
        (lambda: MIXTURE.outlier(WIDE), "the Batch has 3 columns and the mixture 2 dimensions"),
        (lambda: MIXTURE.log_prob(X, projection=np.ones((80, 2, 3))), "projection has 3 columns and the mixture 2"),
        (lambda: MIXTURE.sample(4, 0, projection=np.ones((4, 1, 3))), r"\(4, p, 2\), got \(4, 1, 3\)"),
        (lambda: MIXTURE.sample(4, 0, projection=np.ones((4, 3))), r"\(4, p, 2\), got \(4, 3\)"),
        (lambda: MIXTURE.sample(-1), "size must be a whole number of at least 0, got -1"),
        (lambda: MIXTURE.condition([1]), r"condition takes a dict \{label or index: value\}, got \[1\]"),
        (lambda: MIXTURE.marginal([True, False]), "coordinate True is neither a label nor an index"),
        (lambda: MIXTURE.with_(labels=[1, 2]), r"labels must be words, got \[1, 2\]"),
        (lambda: MIXTURE.with_(units=["mas", None]), "units must be words"),
        (lambda: MIXTURE.with_(labels=7), "labels must name 2 coordinates, got 7"),
        (lambda: xd.fit(X, 3, mixture=MIXTURE), "mixture has 2 components and components=3"),
        (lambda: xd.fit(X, mixture="model.safetensors"), "mixture must be an xd.Mixture"),
    ],
)
def test_questions_to_a_mixture(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_components_that_agree_with_the_mixture_are_fine():
    assert xd.fit(X, 2, mixture=MIXTURE, epochs=1).mixture.k == 2


def test_any_kind_of_number_is_a_fraction():
    one, other = fit(validation=np.float32(0.25)), fit(validation=0.25)
    assert one.validation == other.validation


def test_a_model_file_with_labels_that_are_no_words(tmp_path):
    arrays = {"weights": np.ones(1), "means": np.zeros((1, 2)), "covariances": np.eye(2)[None]}
    save_tensors(tmp_path / "m", "mixture", arrays, {"labels": [1, 2], "units": None, "meta": {}})
    with pytest.raises(ValueError, match="is damaged: labels must be words"):
        xd.load(tmp_path / "m")


@pytest.mark.sampled
@pytest.mark.parametrize("validation", [X, {"X": X}, xd.Batch.from_arrays(X)])
def test_validation_without_noise_is_said(validation, caplog):
    with caplog.at_level(logging.WARNING, "xdeconv"):
        fit(validation=validation)
    assert "the data have noise and validation has none" in caplog.text
    caplog.clear()
    fit(validation={"X": X, "noise": 0.0 * S})
    assert caplog.text == ""


@pytest.mark.parametrize("words", [{}, {"standardize": False}, {"start": "random"}, {"batch_rows": 40}])
def test_projections_and_log_priors_go_together(words):
    """The frame and the start fit one Gaussian to projected rows: priors of more components are not its business."""
    rng = np.random.default_rng(0)
    R, log_prior = rng.normal(size=(80, 2, 2)), np.where(rng.random((80, 2)) < 0.3, -3.0, 0.0)
    result = fit(projection=R, log_prior=log_prior, **words)
    assert np.isfinite(result.loglik)
    table = fit(projection=R, log_prior=log_prior[:3], label=np.arange(80) % 3, **words)
    assert np.isfinite(table.loglik)


VALIDATIONS = [
    (1, "a fraction between 0 and 1, got 1"),
    (True, "got True"),
    ((X, S), "validation is a tuple of arrays"),
    ({"X": X, "sigma": S}, "which is none of"),
    (X[:, :1], "validation has 1 dimensions and the data 2"),
    (X[:0], "validation has no rows"),
]


@pytest.mark.parametrize(("validation", "message"), VALIDATIONS)
def test_a_selection_reads_validation_as_a_fit_does(validation, message):
    for call in (fit, lambda **words: xd.select(X, [1], noise=S, **words)):
        with pytest.raises(ValueError, match=message):
            call(validation=validation)


def test_a_selection_takes_every_kind_of_validation():
    rows = {"data": X, "components": [1], "noise": S, "epochs": 2}
    scores = [xd.select(**rows, validation=v).table[0].score for v in (0.25, np.float32(0.25))]
    assert scores[0] == scores[1]
    kinds = [{"X": X, "error": np.sqrt(S)}, xd.Batch.from_arrays(X, S), xd.data.as_source(X, noise=S)]
    scores = [xd.select(**rows, validation=v).table[0].score for v in kinds]
    assert scores == pytest.approx([scores[0]] * 3, rel=1e-12)


def test_a_fit_is_not_resumed_with_another_lambda(tmp_path):
    def fit_by(method):
        checkpoint = xd.Checkpoint(tmp_path / "a.checkpoint", resume=True)
        return fit(method=method, batch_rows=40, checkpoint=checkpoint)

    fit_by(xd.EM(step=lambda epoch: 0.5))
    fit_by(xd.EM(step=lambda epoch: 0.5))
    with pytest.raises(ValueError, match=r"belongs to another fit \(method: "):
        fit_by(xd.EM(step=lambda epoch: 0.4))


def test_a_column_with_nothing_observed_is_refused_by_name():
    empty = np.column_stack([X[:, 0], np.full(80, np.nan)])
    for data, name in ((empty, "column 1"), ({"a": X[:, 0], "b": empty[:, 1]}, "b")):
        with pytest.raises(ValueError, match=f"{name} has no observed value in any row: leave it out"):
            xd.fit(data, 2)
    with pytest.raises(ValueError, match="column 1 has no observed value"):
        xd.XDGMM(2).fit(empty, noise=S)
    with pytest.raises(ValueError, match="column 1 has no observed value"):
        xd.select(empty, [1, 2], noise=S)
    with pytest.raises(ValueError, match="speed has no observed value"):
        xd.fit(empty, 2, labels=["place", "speed"])
    with pytest.raises(ValueError, match="column 1 has no observed value in any row with weight"):
        xd.fit(np.where(np.arange(80)[:, None] < 40, X, empty), 2, weight=(np.arange(80) >= 40).astype(float))
    with pytest.raises(ValueError, match="column 1 has no observed value"):
        xd.fit(X[:, :1], 2, projection=np.broadcast_to([[[1.0, 0.0]]], (80, 1, 2)))
    assert xd.fit(empty, mixture=MIXTURE, noise=S, epochs=1).mixture.k == 2  # what is known of it is in the mixture


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
@pytest.mark.parametrize("each", [1e-320, 1e308])
def test_weights_with_which_nothing_can_be_computed_are_refused(each):
    """Denormal ones gave a log-likelihood of -14 in place of -2.8, and huge ones "1 components need as many rows"."""
    for more in ({}, {"method": "minibatch-em", "batch_rows": 20}):
        with pytest.raises(ValueError, match=r"the weights of all rows add up to .*: multiply them by a constant"):
            xd.fit(X, 1, noise=S, weight=np.full(80, each), epochs=2, **more)
    small, one = (xd.fit(X, 1, noise=S, weight=np.full(80, w), epochs=2).loglik for w in (1e-100, 1.0))
    assert small == pytest.approx(one, rel=1e-12)


class Streamed(xd.Source):
    """Rows of a user's own source."""

    rows, dim = 80, 2

    def __init__(self, values):
        self.values = values

    def batches(self, epoch, *, rank=0, world=1):
        yield xd.Batch.from_arrays(self.values[rank::world], error=[0.5, 0.5])


def test_a_column_that_only_rows_held_out_show_is_refused():
    """A mean of 0 and a variance of 0.01 were made up for it, without a word."""
    once = np.column_stack([X[:, 0], np.where(np.arange(80) == 7, 1.0, np.nan)])
    held = next(s for s in range(99) if xd.data.as_source(once).split(0.3, s)[0].batch.x[1].isnan().all())
    what = "column 1 has no observed value in any row that is not held out: leave it out"
    with pytest.raises(ValueError, match=what):
        xd.fit(once, 1, validation=0.3, seed=held, epochs=2)
    assert xd.fit(once, 1, validation=0.3, seed=held, epochs=2, mixture=xd.fit(once, 1, epochs=2).mixture)
    assert xd.fit(once, 1, validation=X, seed=held, epochs=2).mixture.means[0, 1] == pytest.approx(1.0)


def test_a_column_that_no_row_of_a_source_of_ones_own_shows_is_refused():
    empty = np.column_stack([X[:, 0], np.full(80, np.nan)])
    once = np.column_stack([X[:, 0], np.where(np.arange(80) == 7, 1.0, np.nan)])
    for more in ({}, {"method": "minibatch-em", "batch_rows": 20}, {"standardize": False}):
        with pytest.raises(ValueError, match="column 1 has no observed value in any row: leave it out"):
            xd.fit(Streamed(empty), 1, epochs=2, **more)
    assert xd.fit(Streamed(empty), mixture=MIXTURE, epochs=1).mixture.k == 2
    said = set()
    for seed in range(12):
        try:
            said.add(float(xd.fit(Streamed(once), 1, epochs=1, validation=0.3, seed=seed).mixture.means[0, 1].round(6)))
        except ValueError as problem:
            said.add(str(problem))
    assert said == {1.0, "column 1 has no observed value in any row that is not held out: leave it out"}


@pytest.mark.parametrize("study", [xd.errors, xd.check, xd.bootstrap])
def test_studies_ask_for_a_mixture(study):
    for wrong in ("model.safetensors", X):
        with pytest.raises(ValueError, match=r"mixture must be an xd\.Mixture, such as xd\.load\(path\), got"):
            study(X, wrong, noise=S)
