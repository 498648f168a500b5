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


# Errors beside a table, by their names


def frame(**columns):
    import pandas

    return pandas.DataFrame({"a": X[:, 0], "b": X[:, 1], "a_error": ERROR[:, 0], "b_error": ERROR[:, 1], **columns})


@pytest.mark.sampled
@pytest.mark.parametrize("way", ["{}", "{}_error", "e_{}"])
def test_errors_whose_names_follow_those_of_the_rows_follow_their_order(way):
    errors = frame()[["b_error", "a_error"]].set_axis([way.format("b"), way.format("a")], axis=1)
    right = xd.fit(frame()[["a", "b"]], 2, error=ERROR, epochs=2).mixture
    given = xd.fit(frame()[["a", "b"]], 2, error=errors, epochs=2).mixture
    np.testing.assert_array_equal(given.means, right.means)
    model = xd.XDGMM(2, random_state=0).fit(frame()[["a", "b"]], error=ERROR)
    swapped = model.score(frame()[["a", "b"]], error=errors)
    assert swapped == model.score(frame()[["a", "b"]], error=ERROR)
    assert right.score(frame()[["b", "a"]], error=errors) == right.score(X, error=ERROR)


def test_errors_of_other_names_cannot_follow_when_columns_change_places():
    mixture = xd.fit(frame()[["a", "b"]], 2, error=ERROR, epochs=2).mixture
    errors = frame()[["b_error", "a_error"]].set_axis(["one", "two"], axis=1)
    with pytest.raises(ValueError, match="put the table in that order, or give its errors as a table of those names"):
        mixture.score(frame()[["b", "a"]], error=errors)


def test_columns_that_are_called_errors_and_fitted_as_features_are_warned_of():
    with pytest.warns(UserWarning, match=r"a_error, b_error: called errors of a, b.*columns=\['a', 'b'\]"):
        result = xd.fit(frame(), 1, epochs=1)
    assert "called errors of a, b" in result.notes[0]


# Tables that Arrow cannot take whole


def odd_columns():
    import pandas

    yield "bytes in another order", np.arange(120).astype(">f4")
    yield "complex", X[:, 0] + 1j
    yield "sparse", pandas.arrays.SparseArray(X[:, 0])
    yield "mixed", [1, "one"] * 60
    yield "objects", [object(), None] * 60


@pytest.mark.parametrize("kind", [name for name, _ in odd_columns()])
def test_a_column_that_nobody_asked_for_keeps_no_table_from_being_read(kind):
    table = frame(odd=dict(odd_columns())[kind])
    right = xd.fit(frame(), 1, columns=["a", "b"], epochs=1).mixture
    np.testing.assert_array_equal(xd.fit(table, 1, columns=["a", "b"], epochs=1).mixture.means, right.means)


def test_numbers_of_another_byte_order_and_sparse_ones_are_numbers():
    swapped = frame().astype(">f8")
    sparse = frame().astype("Sparse[float64]")
    right = xd.open(frame(), ["a", "b"]).load().batch
    for table in (swapped, sparse):
        assert xd.open(table, ["a", "b"]).load().batch.x.equal(right.x)


def test_what_is_not_a_number_is_named():
    with pytest.raises(ValueError, match=r"column a .*'one'"):
        xd.fit(frame(a=[1, "one"] * 60), 1, columns=["a"])
    columns = {"a": np.zeros((120, 2)), "a_error": np.ones(120)}
    with pytest.raises(ValueError, match=r"column a must be one number per row, got shape \(120, 2\)"):
        xd.fit(columns, 1, columns=["a"])


def test_columns_of_coordinates_are_left_out_of_an_astropy_table():
    from astropy.coordinates import SkyCoord
    from astropy.table import Table

    table = Table.from_pandas(frame())
    table["place"] = SkyCoord(X[:, 0], X[:, 1], unit="deg")
    assert xd.open(table, ["a", "b"]).rows == 120


def test_a_lazy_frame_is_collected():
    import polars

    lazy = polars.from_pandas(frame()).lazy()
    right = xd.fit(frame(), 2, columns=["a", "b"], epochs=2).mixture
    assert xd.fit(lazy, 2, columns=["a", "b"], epochs=2).mixture.score(lazy) == right.score(frame())
    np.testing.assert_array_equal(xd.fit(lazy.select("a", "b"), 2, epochs=2).mixture.labels, ["a", "b"])


# A path by itself


def test_a_path_without_columns_is_a_catalogue_that_must_be_told_them(tmp_path):
    from xdeconv.catalog.store import prepare

    frame().to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(ValueError, match=r"name the columns to fit; those of .*rows.parquet are a, b, a_error"):
        xd.fit(tmp_path / "rows.parquet", 1)
    store = prepare(tmp_path / "rows.parquet", tmp_path / "store", reading={"columns": ["a", "b"]})
    assert xd.fit(str(store), 1, epochs=1).mixture.labels == ("a", "b")


def test_errors_beside_columns_are_sent_to_open():
    with pytest.raises(ValueError, match=r"error cannot be given beside columns=.*xd.open\(data, columns, error="):
        xd.fit(frame(), 1, columns=["a"], error=[0.1])


def test_values_without_an_error_stand_in_the_notes_of_a_fit():
    for memory in (None, False):
        with pytest.warns(xd.NoNoiseWarning):
            source = xd.open(frame()[["a", "b", "b_error"]], ["a", "b"], memory=memory)
        assert any(note.startswith("NO NOISE: no error column was found for a") for note in xd.fit(source, 1).notes)
    with pytest.warns(xd.NoNoiseWarning) as said:
        xd.fit(frame()[["a"]], 1, columns=["a"])
    assert said[0].filename == __file__
