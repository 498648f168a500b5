"""Pictures of a mixture beside a background."""

import numpy as np
import pytest

import xdeconv as xd
from xdeconv.mixture.background import Rows
from xdeconv.plot.explorer._explore import facts
from xdeconv.plot.flattening import flattened

BOX = xd.Uniform([0.0, 0.0], [10.0, 10.0])
MIXTURE = xd.Mixture(
    [1.0], [[5.0, 6.0]], [0.3 * np.eye(2)], labels=["x", "y"], background=BOX, background_weight=0.4
)  # fmt: skip


def test_flattened_is_the_density():
    points = np.array([[5.0, 6.0], [2.0, 2.0], [9.0, 4.0]])
    np.testing.assert_allclose(flattened(MIXTURE).log_prob(points), MIXTURE.log_prob(points), rtol=2e-3)
    field = MIXTURE.with_(background=MIXTURE.with_(background=None))
    assert flattened(field).k == 2


def test_contours_do_not_wander_over_a_uniform_background():
    ax = xd.plot.density_2d(MIXTURE, ["x", "y"], limits=((-1.0, 11.0),) * 2, enclosed=(0.3, 0.8, 0.9))
    outermost = np.concatenate([path.vertices for path in ax.collections[1].get_paths()[:1]])
    np.testing.assert_allclose([outermost.min(0), outermost.max(0)], [[0, 0], [10, 10]], atol=0.1)  # the box
    assert np.abs(np.abs(outermost - 5).max(1) - 5).max() < 0.1
    assert ax.get_legend_handles_labels()[1] == ["true density: 30 to 100 % within contours"]


def test_calibration_of_rows_with_a_background_is_even():
    S = np.full((4000, 2), 0.04)
    u = xd.plot.pit(MIXTURE, MIXTURE.sample(4000, 1, noise=S), noise=S)
    assert np.abs(u.mean(0) - 0.5).max() < 0.02
    assert np.abs(u.std(0) - 12**-0.5).max() < 0.01


def test_pictures_are_drawn():
    rows = MIXTURE.sample(300, 0)
    xd.plot.corner(MIXTURE)
    xd.plot.marginal_1d(MIXTURE, "x")
    xd.plot.misfit(MIXTURE, rows, ["x", "y"], error=[0.1, 0.1])
    assert "0.4" in str(facts(MIXTURE)["background"])
    assert facts(MIXTURE.with_(tails=xd.StudentT(3.0)))["k"] == 6  # the page draws Gaussians
    with pytest.raises(ValueError, match=r"with_\(background=None\)"):
        xd.plot.corner(MIXTURE.with_(background=Rows()))
