"""Tables in memory: names become labels, units travel, errors follow both."""

import numpy as np
import pytest

import xdeconv as xd

X = np.random.default_rng(0).normal(size=(120, 2))
ERROR = np.abs(np.random.default_rng(1).normal(size=(120, 2)))


def astropy_table(kind="Table", unit=("mas", "mag"), values=X, names=("a", "b")):
    from astropy import table, units

    columns = {name: values[:, i] * units.Unit(unit[i]) for i, name in enumerate(names)}
    return getattr(table, kind)(columns)


def tables():
    import pandas
    import polars
    import pyarrow as pa

    columns = {"a": X[:, 0], "b": X[:, 1]}
    yield "pandas", pandas.DataFrame(columns)
    yield "polars", polars.DataFrame(columns)
    yield "arrow", pa.table(columns)
    yield "dict", columns
    yield "structured", np.rec.fromarrays([X[:, 0], X[:, 1]], names="a,b")
    yield "Table", astropy_table("Table")
    yield "QTable", astropy_table("QTable")


KINDS = ("pandas", "polars", "arrow", "dict", "structured", "Table", "QTable")


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
def test_every_table_gives_its_names_and_the_same_numbers(kind):
    table = dict(tables())[kind]
    plain = xd.fit(X, 2, epochs=2).mixture
    for mixture in (
        xd.fit(table, 2, epochs=2).mixture,
        xd.fit(xd.open(table, ["a", "b"], error={"a": None, "b": None}), 2, epochs=2).mixture,
        xd.XDGMM(2, random_state=0, max_iter=2, tol=0).fit(table).mixture_,
    ):
        assert mixture.labels == ("a", "b")
        assert mixture.units == (("mas", "mag") if "Table" in kind else None)
    np.testing.assert_array_equal(xd.fit(table, 2, epochs=2).mixture.means, plain.means)
    named = plain.with_(labels=["b", "a"])
    np.testing.assert_array_equal(named.log_prob(table), plain.log_prob(X[:, ::-1]))


def test_quantities_give_their_unit():
    from astropy import units

    assert xd.fit(X * units.mas, 2, epochs=2).mixture.units == ("mas", "mas")


def test_units_of_arrow_fields_travel():
    import pyarrow as pa

    fields = [pa.field(name, pa.float64(), metadata={"unit": unit}) for name, unit in (("a", "mas"), ("b", ""))]
    table = pa.table([pa.array(X[:, 0]), pa.array(X[:, 1])], schema=pa.schema(fields))
    assert xd.fit(table, 2, epochs=2).mixture.units == ("mas", "")


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["Table", "QTable"])
def test_errors_in_other_units_are_converted(kind):
    right = xd.fit(X, 2, error=ERROR, epochs=3).mixture.covariances
    in_uas = astropy_table(kind, ("uas", "mmag"), ERROR * 1000)[["b", "a"]]
    found = xd.fit(astropy_table(kind), 2, error=in_uas, epochs=3).mixture.covariances
    np.testing.assert_allclose(found, right, rtol=1e-9)
    variances = astropy_table(kind, ("uas2", "mmag2"), ERROR**2 * 1e6)
    found = xd.fit(astropy_table(kind), 2, noise=variances, epochs=3).mixture.covariances
    np.testing.assert_allclose(found, right, rtol=1e-9)
    model = xd.XDGMM(2, random_state=0, max_iter=3, tol=0).fit(astropy_table(kind), error=in_uas)
    plain = xd.XDGMM(2, random_state=0, max_iter=3, tol=0).fit(X, error=ERROR)
    np.testing.assert_allclose(model.covariances_, plain.covariances_, rtol=1e-9)
    np.testing.assert_allclose(
        model.score_samples(astropy_table(kind), error=in_uas), plain.score_samples(X, error=ERROR), rtol=1e-9
    )


def test_errors_and_rows_in_units_that_do_not_fit_are_refused():
    from astropy import units

    table = astropy_table()
    with pytest.raises(ValueError, match="error is in 'km/s', which cannot be turned into 'mas'"):
        xd.fit(table, 2, error=astropy_table(unit=("km/s", "mag"), values=ERROR))
    with pytest.raises(ValueError, match="not the square of 'mas'"):
        xd.fit(table, 2, noise=astropy_table(unit=("mas", "mag2"), values=ERROR))
    with pytest.raises(ValueError, match="give a table of error"):
        xd.fit(table, 2, error=ERROR * units.mas)
    mixture = xd.fit(table, 2, epochs=2).mixture
    in_degrees = astropy_table(unit=("deg", "mag"))
    with pytest.raises(ValueError, match="a is in 'deg' in the table and in 'mas' in the mixture"):
        mixture.log_prob(in_degrees)
    with pytest.raises(ValueError, match="a is in 'deg'"):
        xd.XDGMM(2, random_state=0, max_iter=2, tol=0).fit(table).score_samples(in_degrees)
    np.testing.assert_array_equal(mixture.log_prob(table), mixture.log_prob(X))


def test_masked_values_are_missing():
    from astropy.table import Table

    masked = Table({"a": np.ma.array(X[:, 0], mask=X[:, 0] > 1), "b": X[:, 1]})
    plain = X.copy()
    plain[X[:, 0] > 1, 0] = np.nan
    np.testing.assert_array_equal(xd.fit(masked, 2, epochs=2).mixture.means, xd.fit(plain, 2, epochs=2).mixture.means)


def test_columns_that_are_no_numbers_are_refused():
    with pytest.raises(ValueError, match="X cannot be read as numbers"):
        xd.fit({"a": X[:, 0], "b": np.array(["x"] * 120)}, 2)
    with pytest.raises(ValueError, match="different lengths"):
        xd.fit({"a": X[:, 0], "b": X[:5, 1]}, 2)
    with pytest.raises(ValueError, match="column b must be one number per row"):
        xd.fit({"a": X[:, 0], "b": X}, 2)
