"""Pictures show the density of the model, with its labels, and stay readable with many components."""

import builtins
import sys

import numpy as np
import pytest

from xdeconv import Mixture, plot
from xdeconv.history import Epoch


@pytest.fixture
def mixture() -> Mixture:
    means = np.array([[0.0, 0.0, 0.0], [4.0, 1.0, 2.0]])
    V = np.stack([np.eye(3), [[1.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 0.2]]])
    return Mixture(np.array([0.75, 0.25]), means, V, labels=["x", "y", "z"], units=["mas", "", "km/s"])


def many(k: int = 512) -> Mixture:
    rng = np.random.default_rng(0)
    A = 0.3 * rng.normal(size=(k, 2, 2))
    return Mixture(rng.dirichlet(np.full(k, 0.3)), rng.normal(size=(k, 2)), A @ A.transpose(0, 2, 1) + 0.01 * np.eye(2))


def test_density_names_its_axes(mixture):
    ax = plot.density_2d(mixture, ["z", "x"], bins=50)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("z [km/s]", "x [mas]")
    assert plot.axis_title(mixture, "y") == "y"
    assert plot.axis_title(mixture.with_(labels=None, units=None), 1) == "coordinate 1"


def test_density_draws_where_it_is_told(mixture):
    ax = plot.new_axes()
    limits = ((-3.0, 6.0), (-2.0, 2.0))
    assert plot.density_2d(mixture, [0, 1], ax, limits=limits, bins=50) is ax
    plot.ellipses(mixture, [0, 1], ax)
    assert (ax.get_xlim(), ax.get_ylim()) == limits


def test_bands_enclose_what_they_say():
    x = np.linspace(-6, 6, 400)
    density = np.exp(-0.5 * (x[:, None] ** 2 + x**2)) / (2 * np.pi)
    levels = plot.enclosing_levels(density, (0.5, 0.9))
    np.testing.assert_allclose(levels, np.array([0.1, 0.5]) / (2 * np.pi), rtol=0.02)


def test_ellipse_is_one_sigma(mixture):
    (drawn,) = plot.ellipses(mixture, ["x", "y"], sigma=2.0).collections
    pair = mixture.marginal(["x", "y"])
    for curve, j in zip(drawn.get_segments(), np.argsort(pair.weights), strict=True):
        away = curve - pair.means[j]
        distance = np.einsum("nd,de,ne->n", away, np.linalg.inv(pair.covariances[j]), away)
        np.testing.assert_allclose(distance, 4.0)


def test_heavier_components_are_more_opaque():
    (drawn,) = plot.ellipses(many(), [0, 1]).collections
    alpha = drawn.get_colors()[:, 3]
    assert len(alpha) == 512
    assert (np.diff(alpha) >= 0).all()
    assert alpha[-1] == pytest.approx(1)
    assert alpha[0] == pytest.approx(plot.FAINTEST, abs=0.01)


def test_opacity_never_passes_one():
    weights = np.random.default_rng(0).dirichlet(np.ones(10), size=1000)
    assert max(plot.opacity(line).max() for line in weights) <= 1


def test_marginal_has_area_one(mixture):
    data = np.append(mixture.sample(20_000, seed=0)[:, 0], np.nan)
    ax = plot.marginal_1d(mixture, "x", data=data, limits=(-6.0, 10.0))
    x, y = ax.lines[-1].get_data()
    assert np.trapezoid(y, x) == pytest.approx(1, abs=1e-6)
    assert len(ax.lines) == mixture.k + 1
    assert sum(bar.get_height() * bar.get_width() for bar in ax.patches) == pytest.approx(1, abs=0.01)


def test_span_leaves_out_the_tails(mixture):
    alone = Mixture(np.ones(1), np.array([[5.0]]), np.array([[[4.0]]]))
    np.testing.assert_allclose(plot.span(alone, 0, tail=0.025), (5 - 2 * 1.96, 5 + 2 * 1.96), atol=0.1)
    constant = Mixture(np.ones(1), np.array([[5.0]]), np.array([[[0.0]]]))
    assert plot.span(constant, 0) == (4.5, 5.5)


def test_corner_is_a_triangle(mixture):
    axes = plot.corner(mixture, mixture.sample(500, seed=0), ["z", "x"], components=True)
    assert axes.shape == (2, 2)
    assert [ax.axison for ax in axes.flat] == [True, False, True, True]
    assert (axes[1, 0].get_xlabel(), axes[1, 0].get_ylabel()) == ("z [km/s]", "x [mas]")
    assert plot.corner(mixture, coordinates=["y"]).shape == (1, 1)


def test_history_has_a_line_for_each_start():
    records = [Epoch(e, 0.5 * e, -1.0 / (e + 1), -2.0 / (e + 1), restart=r) for r in range(2) for e in range(5)]
    ax = plot.history(records, against="seconds")
    assert len(ax.lines) == 4
    np.testing.assert_allclose(ax.lines[0].get_xdata(), 0.5 * np.arange(5))
    assert len(plot.history([]).lines) == 0
    with pytest.raises(ValueError, match="against"):
        plot.history(records, against="hours")


def test_wrong_coordinates_are_refused(mixture):
    with pytest.raises(ValueError, match="give 2 coordinates"):
        plot.density_2d(mixture, ["x"])
    with pytest.raises(ValueError, match="no coordinate 'w'"):
        plot.ellipses(mixture, ["x", "w"])


def test_pictures_are_saved(mixture, tmp_path):
    ax = plot.ellipses(mixture, ["x", "y"], plot.density_2d(mixture, ["x", "y"], bins=50))
    ax.figure.savefig(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 1000


def test_missing_matplotlib_says_what_to_install(mixture, monkeypatch):
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "matplotlib.figure", raising=False)
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r"pip install 'xdeconv\[plot\]'"):
        plot.density_2d(mixture, ["x", "y"])
