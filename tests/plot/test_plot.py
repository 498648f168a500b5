"""Pictures show the density of the model, with its labels, and stay readable with many components."""

import builtins
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.legend import Legend
from matplotlib.testing.compare import compare_images
from matplotlib.text import Text
from scipy.stats import kstest, multivariate_normal, norm

import xdeconv as xd
from xdeconv import Mixture, plot
from xdeconv.fitting.history import Epoch, columns
from xdeconv.plot.convolving import grouped
from xdeconv.plot.misfitting import cell_probability
from xdeconv.plot.skymap import sky_density

PICTURES = Path(__file__).parent / "pictures"
TOLERANCE = 1.5  # root mean square of pixel values: rounding in another release of matplotlib, never a moved curve
SKY = ("ra", "dec", "bp_rp", "phot_g_mean_mag")


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


def test_heavier_components_are_more_opaque(mixture):
    (drawn,) = plot.ellipses(many(), [0, 1]).collections
    alpha = drawn.get_colors()[:, 3]
    assert len(alpha) == 512
    assert (np.diff(alpha) >= 0).all()
    assert 0 < alpha[0] < 0.1 < alpha[-1] < 0.9
    even = Mixture(np.full(512, 1 / 512), many().means, many().covariances)
    (crowd,) = plot.ellipses(even, [0, 1]).collections
    assert crowd.get_colors()[0, 3] < 0.5
    assert crowd.get_linewidth()[0] < drawn.get_linewidth()[0] < 1.6
    (few,) = plot.ellipses(mixture, ["x", "y"]).collections
    assert few.get_colors()[-1, 3] == pytest.approx(1)


def test_opacity_never_passes_one():
    weights = np.random.default_rng(0).dirichlet(np.ones(10), size=1000)
    assert max(plot.opacity(line).max() for line in weights) <= 1


def test_marginal_has_area_one(mixture):
    data = np.append(mixture.sample(20_000, seed=0)[:, 0], np.nan)
    ax = plot.marginal_1d(mixture, "x", data=data, limits=(-6.0, 10.0))
    x, y = ax.lines[-1].get_data()
    assert np.trapezoid(y, x) == pytest.approx(1, abs=1e-6)
    assert len(ax.collections[0].get_segments()) == mixture.k
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


def test_a_mixture_remembers_its_history(tmp_path):
    X = np.random.default_rng(0).normal(size=(300, 1))
    result = xd.fit(X, 2, error=[0.5], epochs=4, tol=0, validation=0.2, method=xd.EM())
    result.mixture.save(tmp_path / "model.safetensors")
    ax = plot.history(xd.load(tmp_path / "model.safetensors"))
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), [record.loglik for record in result.history])
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), [record.validation for record in result.history])
    with pytest.raises(ValueError, match="does not remember seconds"):
        plot.history(result.mixture, against="seconds")
    with pytest.raises(ValueError, match="remembers no history"):
        plot.history(result.mixture.with_(meta={}))


def test_wrong_coordinates_are_refused(mixture):
    with pytest.raises(ValueError, match="give 2 coordinates"):
        plot.density_2d(mixture, ["x"])
    with pytest.raises(ValueError, match="no coordinate 'w'"):
        plot.ellipses(mixture, ["x", "w"])


def test_pictures_are_saved(mixture, tmp_path):
    ax = plot.ellipses(mixture, ["x", "y"], plot.density_2d(mixture, ["x", "y"], bins=50))
    ax.figure.savefig(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 1000


# Noise and rows


def noisy_rows(mixture: Mixture, n: int = 400, seed: int = 1, loud: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Rows with correlated noise of their own, a tenth of the values missing."""
    rng = np.random.default_rng(seed)
    A = loud * rng.normal(size=(n, mixture.d, mixture.d)) * rng.uniform(0.1, 0.6, size=(n, 1, 1))
    S = A @ A.transpose(0, 2, 1)
    X = mixture.sample(n, seed=seed, noise=S)
    return np.where(rng.random(X.shape) < 0.1, np.nan, X), S


def test_noisy_density_is_the_mean_over_rows(mixture):
    line, x = mixture.marginal(["x"]), np.linspace(-5, 9, 50)
    S = np.random.default_rng(0).gamma(1.0, size=300)
    exact = np.mean([np.exp(line.log_prob(x[:, None], noise=np.full((50, 1), s))) for s in S], axis=0)
    np.testing.assert_allclose(plot.noisy_density(line, x, S, groups=300), exact, rtol=1e-12)
    np.testing.assert_allclose(plot.noisy_density(line, x, S), exact, atol=1e-4 * exact.max())


def test_groups_keep_all_rows_and_their_mean_noise(mixture):
    _, S = noisy_rows(mixture)
    found = grouped(S, 16)
    assert len(found) == 16
    assert sum(share for share, _ in found) == pytest.approx(1)
    np.testing.assert_allclose(sum(share * mean for share, mean in found), S.mean(axis=0))
    assert len(grouped(np.broadcast_to(np.eye(2), (50, 2, 2)))) == 1


def test_pit_is_exact_row_by_row(mixture):
    X, S = noisy_rows(mixture)
    u = plot.pit(mixture, X, S)
    assert np.array_equal(np.isnan(u), np.isnan(X))
    for i, a in ((0, 0), (7, 2), (31, 1)):
        sd = np.sqrt(mixture.covariances[:, a, a] + S[i, a, a])
        expected = mixture.weights @ norm.cdf((X[i, a] - mixture.means[:, a]) / sd)
        assert np.isnan(X[i, a]) or u[i, a] == pytest.approx(expected, abs=1e-14)


def test_pit_of_projected_rows_and_of_components_without_width():
    mixture = Mixture([1.0], [[1.0, 2.0]], [[[1.0, 0.5], [0.5, 2.0]]])
    R = np.array([[[1.0, 1.0]], [[1.0, -1.0]]])
    u = plot.pit(mixture, [[3.0], [0.0]], [[0.5], [0.5]], R)
    np.testing.assert_allclose(u[:, 0], norm.cdf([0.0, 1.0 / np.sqrt(2.0 + 0.5)]))
    point = Mixture([1.0], [[1.0]], [[[0.0]]])
    np.testing.assert_array_equal(plot.pit(point, [[0.0], [1.0], [2.0]]), [[0.0], [0.5], [1.0]])


def test_pit_is_even_for_the_right_model_only(mixture):
    X, S = noisy_rows(mixture, 4000, loud=2.0)
    right, noise_ignored = plot.pit(mixture, X, S), plot.pit(mixture, X)
    shifted = plot.pit(mixture.transformed(np.full(3, 0.3), np.ones(3)), X, S)
    for a in range(3):
        seen = np.isfinite(X[:, a])
        assert kstest(right[seen, a], "uniform").pvalue > 0.01
        assert kstest(noise_ignored[seen, a], "uniform").pvalue < 1e-3
        assert kstest(shifted[seen, a], "uniform").pvalue < 1e-3


def test_cells_have_the_probability_of_the_noisy_model(mixture):
    pair = mixture.marginal(["x", "y"])
    _, S = noisy_rows(mixture, 3)
    edges = [np.linspace(-3, 6, 7), np.linspace(-2, 3, 6)]
    found = cell_probability(pair, edges, S[:, :2, :2])
    exact = np.zeros((6, 5))
    for noise in S[:, :2, :2]:
        for w, m, V in zip(pair.weights, pair.means, pair.covariances, strict=True):
            cdf = multivariate_normal(m, V + noise).cdf(np.stack(np.meshgrid(*edges, indexing="ij"), -1))
            exact += w / 3 * np.diff(np.diff(cdf, axis=0), axis=1)
    np.testing.assert_allclose(found, exact, atol=2e-3 * exact.max())


def test_misfit_of_rows_without_noise(mixture):
    X = mixture.sample(2000, seed=1)
    with np.errstate(all="raise"):
        titles = [plot.misfit(mixture, X, ["x", "y"], bins=16, **none).get_title() for none in ({}, {"error": X * 0})]
    assert titles[0] == titles[1]
    assert float(titles[0].split()[-1]) == pytest.approx(1.0, abs=0.4)


def test_misfit_is_near_one_for_the_right_model_only(mixture):
    X, S = noisy_rows(mixture, 4000)

    def rms(model):
        return float(plot.misfit(model, X, ["x", "y"], noise=S, bins=16).get_title().split()[-1])

    assert 0.85 < rms(mixture) < 1.15
    assert rms(mixture.transformed(np.full(3, 0.5), np.ones(3))) > 2


def test_calibration_counts_what_was_observed(mixture):
    X, S = noisy_rows(mixture)
    axes = plot.calibration(mixture, X, ["z", "x"], noise=S, bins=10)
    assert [ax.get_title() for ax in axes] == [
        f"{name}: {np.isfinite(X[:, a]).sum()} values" for name, a in (("z", 2), ("x", 0))
    ]


def test_denoised_rows_say_what_is_missing(mixture):
    X, S = noisy_rows(mixture, 100)
    left, right = plot.denoised(mixture, X, ["x", "z"], noise=S)
    lost = int(np.isnan(X[:, [0, 2]]).any(axis=1).sum())
    assert left.get_title() == f"measured: {100 - lost} rows ({lost} miss a value)"
    np.testing.assert_allclose(right.lines[0].get_xydata(), mixture.posterior(X, S).mean()[:, [0, 2]])


def test_rows_with_a_projection_are_drawn_denoised(mixture):
    """They measure none of the model's coordinates; all pictures of them were refused without a way out."""
    P = np.random.default_rng(5).normal(size=(40, 2, 3))
    batch = mixture.batch(np.zeros((40, 2)), np.full((40, 2), 0.1), projection=P)
    (ax,) = plot.denoised(mixture, batch, ["x", "z"])
    assert ax.get_title() == "denoised: 40 rows"
    np.testing.assert_allclose(ax.lines[0].get_xydata(), mixture.posterior(batch).mean()[:, [0, 2]])
    with pytest.raises(ValueError, match=r"xdeconv check.*--denoised"):
        plot.density_2d(mixture, ["x", "z"], data=batch)


def test_given_values_condition_the_model(mixture):
    x, y = plot.marginal_1d(mixture, "x", given={"y": 1.0}, components=False).lines[0].get_data()
    np.testing.assert_allclose(y, np.exp(mixture.condition({"y": 1.0}).marginal(["x"]).log_prob(x[:, None])))
    ax = plot.conditional_1d(mixture, "z", {"x": 4.0, "y": 1.0})
    expected = np.exp(mixture.condition({"x": 4.0, "y": 1.0}).log_prob(ax.lines[1].get_xdata()[:, None]))
    np.testing.assert_allclose(ax.lines[1].get_ydata(), expected)
    assert ax.get_legend().get_texts()[1].get_text() == "x = 4 mas, y = 1"
    with pytest.raises(ValueError, match="x is among the given values"):
        plot.conditional_1d(mixture, "x", {"x": 1.0})
    with pytest.raises(ValueError, match="data or given, not both"):
        plot.corner(mixture, np.zeros((1, 3)), given={"x": 1.0})


def test_conditional_map_has_the_quantiles(mixture):
    ax = plot.conditional_map(mixture, ["x", "y"], bins=20)
    x, median = ax.lines[1].get_data()
    for at, q in zip(x[::7], median[::7], strict=True):
        line = mixture.marginal(["x", "y"]).condition({"x": at})
        assert line.weights @ norm.cdf((q - line.means[:, 0]) / np.sqrt(line.covariances[:, 0, 0])) == pytest.approx(
            0.5
        )


# The sky, colours and magnitudes


def stars() -> Mixture:
    means = np.array([[266.0, -29.0, 1.2, 19.0], [80.0, 40.0, 0.8, 15.0], [359.0, 5.0, 2.2, 17.0]])
    sd = np.array([[12.0, 8.0, 0.5, 0.9], [40.0, 15.0, 0.2, 1.2], [6.0, 3.0, 0.4, 1.0]])
    V = sd[:, :, None] * (0.6 * np.eye(4) + 0.4) * sd[:, None, :]
    return Mixture([0.5, 0.3, 0.2], means, V, SKY, ("deg", "deg", "mag", "mag"))


def test_the_sky_holds_all_the_probability_once():
    pair = stars().marginal(["ra", "dec"])
    for center in (0.0, 180.0):
        x, y, density = sky_density(pair, np.ones(2), center, 180)
        area = np.outer(np.diff(np.sin(np.radians(y))), np.radians(np.diff(x))) * (180 / np.pi) ** 2
        assert (density * area).sum() == pytest.approx(1, abs=1e-4)
    over = Mixture([1.0], [[10.0, 89.0]], [[[25.0, 0.0], [0.0, 25.0]]])
    x, y, density = sky_density(over, np.ones(2), 0.0, 180)
    area = np.outer(np.diff(np.sin(np.radians(y))), np.radians(np.diff(x))) * (180 / np.pi) ** 2
    assert (density * area).sum() == pytest.approx(1, abs=1e-3)
    assert density[178, 180 + 10] == pytest.approx(density[179, 180 + 10], rel=0.8)  # not cut at the pole


def test_the_sky_knows_radians_and_refuses_other_units():
    mixture = stars().marginal(["ra", "dec"])
    turned = mixture.transformed(np.zeros(2), np.full(2, np.pi / 180)).with_(units=("rad", "rad"))
    a, b = plot.sky(mixture, bins=30), plot.sky(turned, bins=30)
    np.testing.assert_allclose(a.collections[0].get_array(), b.collections[0].get_array(), rtol=1e-6)
    with pytest.raises(ValueError, match="not an angle on the sky"):
        plot.sky(mixture.with_(units=("mag", "deg")))
    with pytest.raises(ValueError, match="longitude and latitude"):
        plot.sky(mixture.with_(labels=("a", "b")))


def test_magnitudes_are_bright_at_the_top():
    ax = plot.colour_magnitude(stars(), bins=30)
    low, high = ax.get_ylim()
    assert low > high
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("bp_rp [mag]", "phot_g_mean_mag [mag]")
    with pytest.raises(ValueError, match="colour and magnitude"):
        plot.colour_magnitude(stars().marginal(["ra", "dec"]))


# Pictures as they were when someone looked at them


def drawings():
    """Every kind of picture, drawn of a mixture."""
    pair, limits = ["bp_rp", "phot_g_mean_mag"], ((0.0, 3.5), (11.0, 22.0))

    def rows(n=300):
        return dict(zip(("data", "noise"), noisy_rows(stars(), n), strict=True))

    def records(m):
        return [Epoch(e, 0.0, -(2.0**-e), -m.means[0, 2] * 2.0**-e, moved=e % 3) for e in range(8)]

    return {
        "density": lambda m: plot.ellipses(m, pair, plot.density_2d(m, pair, limits=limits, bins=60)),
        "marginal": lambda m: plot.marginal_1d(m, "bp_rp", data=rows()["data"][:, 2], error=0.3),
        "conditional": lambda m: plot.conditional_1d(m, "bp_rp", [{"phot_g_mean_mag": g} for g in (15, 17, 19)]),
        "conditional_map": lambda m: plot.conditional_map(m, pair, limits=limits, bins=60),
        "corner": lambda m: plot.corner(m, coordinates=pair, **rows(), components=True, bins=40),
        "sky": lambda m: plot.sky(m, data=rows()["data"], bins=45),
        "colour_magnitude": lambda m: plot.colour_magnitude(m, **rows(), bins=60),
        "history": lambda m: plot.history(m.with_(meta={"history": columns(records(m))})),
        "denoised": lambda m: plot.denoised(m, coordinates=pair, **rows(60), bins=50),
        "calibration": lambda m: plot.calibration(m, coordinates=pair, **rows()),
        "misfit": lambda m: plot.misfit(m, coordinates=pair, **rows(), bins=16),
    }


def rendered(draw, mixture: Mixture, path: Path) -> Path:
    """A picture without any text, whose shape depends on fonts, in matplotlib's own style."""
    with matplotlib.rc_context(matplotlib.rcParamsDefault):
        axes = draw(mixture)
        figure = (axes.flat[0] if isinstance(axes, np.ndarray) else axes).figure
        for part in figure.findobj(lambda artist: isinstance(artist, Text | Legend)):
            part.set_visible(False)
        figure.savefig(path, dpi=40)
    return path


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", list(drawings()))
def test_the_picture_is_as_it_was(name, tmp_path, request):
    drawn = rendered(drawings()[name], stars(), tmp_path / f"{name}.png")
    if request.config.getoption("--redraw"):
        PICTURES.mkdir(exist_ok=True)
        (PICTURES / drawn.name).write_bytes(drawn.read_bytes())
    assert compare_images(str(PICTURES / drawn.name), str(drawn), tol=TOLERANCE) is None


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", list(drawings()))
def test_a_moved_curve_is_seen(name, tmp_path):
    moved = stars().transformed(np.array([3.0, 1.0, 0.05, 0.15]), np.ones(4))
    drawn = rendered(drawings()[name], moved, tmp_path / f"{name}.png")
    assert compare_images(str(PICTURES / drawn.name), str(drawn), tol=TOLERANCE) is not None


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


def test_calibration_by_error_shows_what_all_values_together_hide():
    rng = np.random.default_rng(0)
    error = np.exp(rng.uniform(np.log(0.2), np.log(2.0), size=(4000, 1)))
    X = rng.normal(size=(4000, 1)) + 1.5 * error * rng.normal(size=(4000, 1))
    together = np.mean([np.var(X) - np.mean(error**2)])
    wide = Mixture([1.0], [[0.0]], [[[float(together)]]], labels=["x"])
    right = Mixture([1.0], [[0.0]], [[[1.0]]], labels=["x"])

    def spreads(model, errors):
        figure = plot.calibration(model, X, error=errors)[0].figure
        return figure.axes[1].lines[1].get_ydata()

    low, *_, high = spreads(wide, error)
    assert low < 0.275
    assert high > 0.295
    assert np.abs(spreads(right, 1.5 * error) - 12**-0.5).max() < 0.011  # 99 % of 800: 0.0118
    assert len(plot.calibration(right, X, error=error, groups=0)[0].figure.axes) == 1
    assert len(plot.calibration(right, X, error=[1.0])[0].figure.axes) == 1  # errors that are all alike
