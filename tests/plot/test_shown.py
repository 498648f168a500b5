"""A picture shows what a model is: contours that close, narrow components, tails, rows that were kept, and a legend."""

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from xdeconv import Cut, Mixture, StudentT, Uniform, plot
from xdeconv.fitting.history import Epoch
from xdeconv.plot.axes import explain
from xdeconv.plot.densities import on_grid
from xdeconv.plot.explorer._explore import facts
from xdeconv.plot.skymap import sky_density
from xdeconv.plot.viewing import view

README = Mixture([0.7, 0.3], [[0, 0], [3, 1]], [np.eye(2), 0.1 * np.eye(2)], labels=["x", "y"])
ONE = Mixture([1.0], [[1.0, -2.0]], [[[1.0, 0.3], [0.3, 2.0]]], labels=["x", "y"])
TAILS = ONE.with_(tails=StudentT(3.0))
WIDE = Mixture([0.7, 0.3], [[0, 0], [0, 0]], [np.diag([1.0, 0.01]), np.diag([0.1, 9.0])], labels=["x", "y"])


@pytest.mark.parametrize("mixture", [README, ONE, TAILS, WIDE], ids=["readme", "one", "tails", "wide"])
def test_the_outermost_contour_closes_within_the_axes(mixture):
    wide, high = view(mixture, "x"), view(mixture, "y")
    _, _, density = on_grid(mixture, wide, high, 200)
    (level,) = plot.enclosing_levels(density, [0.99])
    edge = np.concatenate([density[0], density[-1], density[:, 0], density[:, -1]])
    assert edge.max() < level
    assert wide[1] - wide[0] < 40  # and yet not all of the tails


def test_the_background_that_is_a_mixture_is_in_view():
    beside = Mixture([1.0], [[20.0]], [[[1.0]]])
    low, high = view(Mixture([1.0], [[0.0]], [[[1.0]]], background=beside, background_weight=0.3), 0)
    assert low < -3
    assert high > 23
    ends = plot.span(Mixture([1.0], [[0.0]], [[[1.0]]], background=beside, background_weight=0.3), 0)
    assert ends[1] > 21


@pytest.mark.parametrize("place", [0.0, 0.013, 0.026])
def test_what_is_narrower_than_a_cell_is_drawn_wherever_it_lies(place):
    """Densities at the middles of cells had streaks of dots, or nothing at all."""
    spot = Mixture([0.5, 0.5], [[1 + place, 1.0], [3.0, 3.0]], [1e-8 * np.eye(2), np.eye(2)])
    x, y, density = on_grid(spot, (-1.0, 7.0), (-1.0, 7.0), 160)
    assert density.sum() * (x[1] - x[0]) * (y[1] - y[0]) == pytest.approx(1, abs=0.02)


def test_a_thin_streak_of_the_sky_has_no_gaps():
    streak = Mixture([1.0], [[10.2, 5.3]], [[[400.0, 200.0], [200.0, 100.001]]])
    _, y, density = sky_density(streak, np.ones(2), 0.0, 90)
    middle = (y[1:] + y[:-1]) / 2
    along = density.max(axis=1)[abs(middle - 5.3) < 10]
    assert along.min() > 0.2 * along.max()


def test_the_peak_of_a_narrow_component_is_on_the_curve():
    narrow = Mixture([0.9, 0.1], [[0.0], [1.2345]], [[[1.0]], [[1e-8]]], labels=["x"])
    curve = plot.marginal_1d(narrow, "x", limits=(-4.0, 4.0)).lines[-1].get_ydata()
    assert curve.max() == pytest.approx(0.1 / np.sqrt(2 * np.pi * 1e-8), rel=0.01)


def test_components_with_tails_add_up_to_the_density():
    two = Mixture([0.4, 0.6], [[0.0], [5.0]], [[[1.0]], [[2.0]]], tails=StudentT(2.5), labels=["x"])
    ax = plot.marginal_1d(two, "x")
    curves = np.array([curve[:, 1] for curve in ax.collections[0].get_segments()])
    np.testing.assert_allclose(curves.sum(axis=0), ax.lines[-1].get_ydata(), rtol=1e-9)


def selected(rows: int = 4000):
    truth = Mixture([0.5, 0.5], [[3.0, 3.0], [7.0, 6.0]], [2 * np.eye(2), 0.4 * np.eye(2)], labels=["x", "y"])
    truth = truth.with_(selection=Cut(0, above=3.0))
    error = np.random.default_rng(0).uniform(0.2, 0.9, size=(rows, 2))
    return truth, truth.sample(rows, seed=1, error=error, selected=True), error


def test_what_is_expected_of_rows_that_were_selected_is_that_of_rows_kept():
    truth, X, error = selected()
    ax = plot.corner(truth, X, error=error, bins=20)[0, 0]
    heights, edges = ax.patches[-1].get_data()[:2]
    seen = np.histogram(X[:, 0], bins=edges)[0] / (len(X) * np.diff(edges))
    assert abs(heights - seen).max() < 0.05
    assert heights[edges[1:] < 3.0].max(initial=0.0) == 0.0
    names = {text.get_text() for text in ax.figure.legends[0].get_texts()}
    assert "expected with noise, of rows kept" in names
    assert "expected with noise" not in names
    title = plot.misfit(truth, X, ["x", "y"], error=error, bins=12).get_title()
    assert float(title.split()[-1]) < 1.3


def test_pictures_of_rows_say_what_their_colours_are():
    error = np.random.default_rng(0).uniform(0.1, 0.9, size=(300, 2))
    X = README.sample(300, seed=1, error=error)
    for ax in (plot.denoised(README, X, ["x", "y"], error=error)[0], plot.calibration(README, X, error=error)[0]):
        assert ax.figure.legends[0].get_texts()


def test_no_legend_is_wider_than_its_figure():
    truth, X, error = selected(300)
    axes = plot.corner(truth, X, error=error, components=True, bins=20)
    figure = axes[0, 0].figure
    FigureCanvasAgg(figure).draw()
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1
    ax = plot.new_axes(size=8.0)
    for name in ("a", "b", "c"):
        ax.plot([], [], label=name)
    explain(ax)
    assert ax.figure.legends[0]._ncols == 3


def test_the_history_has_plain_numbers():
    ax = plot.history([Epoch(e, 0.0, -3.4081 - 1e-5 / (e + 1)) for e in range(12)])
    FigureCanvasAgg(ax.figure).draw()
    assert ax.yaxis.get_major_formatter().get_offset() == ""
    assert all(float(tick).is_integer() for tick in ax.get_xticks())


def test_errors_of_tiny_size_have_no_power_of_ten_over_their_title():
    error = np.random.default_rng(0).uniform(1e-9, 5e-8, size=(500, 2))
    axes = plot.calibration(README, README.sample(500, seed=1, error=error), error=error)
    FigureCanvasAgg(axes[0].figure).draw()
    for ax in axes[0].figure.axes:
        assert ax.xaxis.get_major_formatter().get_offset() == ""


def test_a_narrow_field_has_a_narrow_figure():
    tall = Mixture([1.0], [[200.0, 10.0]], [np.diag([0.1, 1.0]) ** 2], labels=["ra", "dec"], units=["deg", "deg"])
    figure = plot.sky(tall, bins=10).figure
    assert figure.get_figwidth() < 0.9 * figure.get_figheight()


def test_the_explorer_knows_the_box_and_what_is_beside_gaussians():
    boxed = ONE.with_(background=Uniform([-20.0, -20.0], [20.0, 20.0]), background_weight=0.3)
    for low, high in facts(boxed)["ranges"]:
        assert low < -20 < 20 < high
    found = facts(TAILS)
    assert (found["k"], found["scales"]) == (6, 6)
    assert found["beside"] == ["tails of Student's t with nu = 3"]
    assert "selection" in facts(selected(10)[0])["beside"][0]


def test_quantiles_of_a_conditional_map_are_of_the_background_too():
    """Lines followed the components where nearly all rows are the background's."""
    boxed = Mixture([1.0], [[2.0, 2.0]], [0.25 * np.eye(2)], labels=["x", "y"])
    boxed = boxed.with_(background=Uniform([0.0, 0.0], [10.0, 10.0]), background_weight=0.5)
    middle = plot.conditional_map(boxed, ["x", "y"], limits=((0.5, 9.5), (0.0, 10.0))).lines[1]
    x, y = middle.get_data()
    assert y[x > 6] == pytest.approx(5.0, abs=0.1)
    assert abs(y[abs(x - 2) < 0.2] - 2).max() < 0.3


def test_the_legend_of_conditional_densities_covers_no_peak():
    given = [{"x": 0.0}, {"x": 1.0}, {"x": 3.0}]
    ax = plot.conditional_1d(README, "y", given)
    FigureCanvasAgg(ax.figure).draw()
    box = ax.get_legend().get_window_extent()
    tops = [ax.transData.transform((0, line.get_ydata().max()))[1] for line in ax.lines]
    assert max(tops) < box.y0
