"""Arrays that users hand over: what is accepted, and what an error says."""

import numpy as np
import pytest
import torch

from xdeconv import Batch
from xdeconv.rows.batch import concatenate

X = np.arange(12.0).reshape(4, 3)
EYE = np.broadcast_to(np.eye(3), (4, 3, 3))


def bent(i=2, j=0, k=1, value=5.0):
    S = EYE.copy()
    S[i, j, k] = S[i, k, j] = value
    return S


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"X": X[0]}, r"shape \(n, p\), got \(3,\)"),
        ({"X": np.zeros((2, 0))}, "no columns"),
        ({"X": np.where(X == 7, np.inf, X)}, "row 2, column 1"),
        ({"X": [["a", "b"]]}, "cannot be read as numbers"),
        ({"X": X + 1j}, "Complex data not supported"),
        ({"X": X, "noise": EYE, "error": X}, "not both"),
        ({"X": X, "noise": np.ones((3, 3))}, r"ambiguous.*noise\[None\]"),
        ({"X": X, "noise": np.ones((4, 2))}, r"shape \(4, 3\), or \(3,\)"),
        ({"X": X, "noise": np.ones((2, 3, 3))}, r"shape \(4, 3, 3\), or \(1, 3, 3\)"),
        ({"X": X, "noise": np.where(X == 4, -1.0, 1.0)}, "noise is negative at row 1, column 1"),
        ({"X": X, "noise": np.where(X == 4, np.nan, 1.0)}, "noise is not finite.*row 1, column 1"),
        ({"X": X, "noise": bent()}, "noise of row 2 is not positive semi-definite"),
        ({"X": X, "noise": EYE + np.triu(np.ones((3, 3)), 1)}, "not symmetric at row 0"),
        ({"X": X, "error": -X - 1}, "error is negative at row 0, column 0"),
        ({"X": X, "error": EYE}, "covariances go in noise"),
        ({"X": X, "projection": np.ones((4, 2, 3))}, r"projection must have shape \(n, p, d\) = \(4, 3, d\)"),
        ({"X": X, "projection": np.full((4, 3, 2), np.nan)}, "projection is not finite at row 0"),
        ({"X": X, "weight": [1.0, 2.0]}, r"weight must have shape \(4,\)"),
        ({"X": X, "weight": [1.0, -2.0, 1.0, 1.0]}, "weight is negative or not finite at row 1"),
        ({"X": X, "weight": np.zeros(4)}, "zero in every row"),
        ({"X": X, "log_prior": np.zeros((3, 2))}, "log_prior must have shape"),
        ({"X": X, "log_prior": np.full((4, 2), -np.inf)}, "-inf for every component at row 0"),
        ({"X": X, "log_prior": np.full((4, 2), np.nan)}, "NaN or"),
        ({"X": X, "label": [0, 0, 0, 0]}, "give log_prior"),
        ({"X": X, "log_prior": np.zeros((2, 2)), "label": [0, 0, 0, 2]}, "label is not in 0..1 at row 3"),
    ],
)
def test_bad_arrays_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Batch.from_arrays(**arguments)


def test_noise_of_a_missing_value_does_not_matter():
    noise = bent(value=np.nan)
    missing = X.copy()
    missing[2, 0] = np.nan
    batch = Batch.from_arrays(missing, noise)
    assert batch.missing
    assert bool(batch.noise.isfinite().all())


@pytest.mark.parametrize("shape", ["diagonal", "shared diagonal", "full", "shared full", "error"])
def test_noise_shapes_mean_what_they_say(shape):
    variances = np.array([1.0, 2.0, 3.0])
    given = {
        "diagonal": {"noise": np.tile(variances, (4, 1))},
        "shared diagonal": {"noise": variances},
        "full": {"noise": np.tile(np.diag(variances), (4, 1, 1))},
        "shared full": {"noise": np.diag(variances)[None]},
        "error": {"error": np.sqrt(variances)},
    }[shape]
    S = Batch.from_arrays(X, **given).covariance()
    torch.testing.assert_close(S.expand(4, 3, 3), torch.from_numpy(np.tile(np.diag(variances), (4, 1, 1))))


def test_other_peoples_arrays_are_accepted():
    import astropy.units as u
    import pandas
    from astropy.table import Table

    expected = Batch.from_arrays(X).x
    for given in (
        torch.from_numpy(X),
        pandas.DataFrame(X),
        X * u.mas,
        Table(X, names=["a", "b", "c"]),
        X.astype(">f8"),
        X.tolist(),
    ):
        torch.testing.assert_close(Batch.from_arrays(given).x, expected)
    masked = np.ma.masked_equal(X, 5.0)
    assert bool(Batch.from_arrays(masked).x[2, 1].isnan())


def test_rows_chunks_and_concatenation():
    batch = Batch.from_arrays(X, EYE, weight=[1.0, 2.0, 3.0, 4.0], log_prior=np.arange(8.0).reshape(4, 2))
    parts = batch.chunks(3)
    assert [part.n for part in parts] == [3, 1]
    back = concatenate(parts)
    for name in ("x", "noise", "weight", "log_prior"):
        torch.testing.assert_close(getattr(back, name), getattr(batch, name))
    shared = Batch.from_arrays(X, noise=[1.0, 2.0, 3.0])
    assert concatenate(shared.chunks(3)).noise.shape == (3, 1)


def test_errors_in_other_units_are_converted():
    import astropy.units as u

    right = Batch.from_arrays(X, error=np.full(3, 0.9)).noise
    torch.testing.assert_close(Batch.from_arrays(X * u.km / u.s, error=np.full(3, 900.0) * u.m / u.s).noise, right)
    torch.testing.assert_close(Batch.from_arrays(X * u.mas, np.full(3, 0.81e-6) * u.arcsec**2).noise, right)
    with pytest.raises(u.UnitConversionError):
        Batch.from_arrays(X * u.km, error=np.ones(3) * u.s)


def test_missing_in_pandas_is_missing():
    import pandas

    table = pandas.DataFrame({"a": pandas.array([1.0, None], dtype="Float64"), "b": [1, 2]})
    assert Batch.from_arrays(table).x.isnan().tolist() == [[False, True], [False, False]]
