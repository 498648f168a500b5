"""What no model can tell: each note where it is due, and none where it is not."""

import numpy as np

import xdeconv as xd
from xdeconv.fitting.limits import cannot_tell
from xdeconv.rows.data import as_source

TRUTH = xd.Mixture([0.5, 0.5], [[-3.0, 0.0], [3.0, 0.0]], np.tile(np.eye(2), (2, 1, 1)), labels=["a", "b"])


def notes(mixture, n, noise):
    return cannot_tell(mixture, as_source(TRUTH.sample(n, seed=0, noise=noise), noise=noise))


def test_enough_rows_of_little_noise_have_no_note():
    assert notes(TRUTH, 1000, [0.1, 0.1]) == []
    assert cannot_tell(TRUTH, as_source(np.zeros((1000, 2)))) == []


def test_few_rows():
    (note,) = notes(TRUTH, 119, [0.1, 0.1])
    assert note.startswith("119 rows are few for the 11 free numbers of 2 components")
    assert notes(TRUTH, 120, [0.1, 0.1]) == []
    assert notes(TRUTH, 1, [0.1, 0.1])[0].startswith("1 row is few for the 11 free numbers")


def test_rows_are_few_for_what_a_structure_leaves_free():
    round_ones = TRUTH.with_(structure="spherical")
    assert notes(round_ones, 80, [0.1, 0.1]) == []
    assert notes(round_ones, 79, [0.1, 0.1])[0].startswith("79 rows are few for the 7 free numbers")


def test_a_component_that_rests_on_few_rows():
    thin = xd.Mixture([0.004, 0.996], TRUTH.means, TRUTH.covariances)
    (note,) = notes(thin, 1000, [0.1, 0.1])
    assert note == "component 0 rests on fewer than 6 rows"


def test_noise_wider_than_everything_and_than_components():
    found = notes(TRUTH, 100_000, [0.1, 16.0])
    assert found == ["the noise of b is 4.0 times as wide as its true values: little is left to see"]
    found = notes(TRUTH, 1000, [0.1, 16.0])
    assert found[1] == "noise hides the width of components 0, 1 in b: xd.errors tells how well it is known"


def test_many_hidden_widths_are_one_line():
    V = np.tile(np.eye(3), (8, 1, 1))
    V[0, 2, 2] = 1e4
    many = xd.Mixture(np.full(8, 1 / 8), np.zeros((8, 3)), V, labels=["a", "b", "c"])
    rows = as_source(many.sample(4000, seed=0, noise=[16.0] * 3), noise=[16.0] * 3)
    far, hidden = cannot_tell(many, rows)
    assert far == "the noise of a, b is 4.0, 4.0 times as wide as its true values: little is left to see"
    assert hidden == ("noise hides the width of components 0, 1, 2, 3, 4 and 3 more in a, b; of components 1, 2, 3, 4, "
                      "5 and 2 more in c: xd.errors tells how well it is known")  # fmt: skip


def test_a_fit_says_so():
    rows = TRUTH.sample(60, seed=0)
    result = xd.fit(rows, 2)
    assert any("60 rows are few" in note for note in result.notes)
    assert list(result.notes) == result.mixture.meta["notes"]
