"""What a picture shows: all components of some weight, the part of the sky that a model is of, and a legend."""

import io
import re

import numpy as np
import pytest
from matplotlib import rc_context
from matplotlib.colors import to_rgba

from xdeconv import Mixture, plot
from xdeconv.cli.plot import suited_kind
from xdeconv.plot.axes import ON_DARK, explain
from xdeconv.plot.names import drawable
from xdeconv.plot.viewing import view, views

README = Mixture([0.7, 0.3], [[0, 0], [3, 1]], [np.eye(2), 0.1 * np.eye(2)], labels=["x", "y"])
DEGREE = Mixture(
    [0.2, 0.8], [[229.64, 2.08], [229.6, 2.1]], [1e-4 * np.eye(2), 0.04 * np.eye(2)], labels=["ra", "dec"],
    units=["deg", "deg"],
)  # fmt: skip


def legend(ax):
    return {text.get_text() for text in ax.figure.legends[0].get_texts()}


def test_no_component_of_some_weight_is_cut_off():
    low, high = view(README, "x")
    assert low <= -3
    assert high >= 3 + 3 * np.sqrt(0.1)  # the readme's own picture ended within it
    (drawn,) = plot.ellipses(README, ["x", "y"], sigma=3.0).collections
    ax = plot.density_2d(README, ["x", "y"], bins=20)
    ends = np.array([ax.get_xlim(), ax.get_ylim()])
    for curve in drawn.get_segments():
        assert (curve >= ends[:, 0]).all()
        assert (curve <= ends[:, 1]).all()


def test_a_wide_component_of_little_weight_does_not_set_the_view():
    wide = Mixture([0.98, 0.02], [[0.0], [0.0]], [[[1.0]], [[1e6]]])
    low, high = view(wide, 0)
    alone = plot.span(wide, 0)
    assert high - low <= 3 * (alone[1] - alone[0])
    tiny = Mixture([0.999, 0.001], [[0.0], [1e6]], [[[1.0]], [[1.0]]])
    assert view(tiny, 0)[1] < 10


def test_limits_of_some_axes_are_those_given():
    ax = plot.density_2d(README, ["x", "y"], limits={"y": (-1.0, 2.0)}, bins=20)
    assert ax.get_ylim() == (-1.0, 2.0)
    assert ax.get_xlim() == views(README, ["x"])[0]
    assert plot.marginal_1d(README, "x", limits={"x": (0.0, 5.0)}).get_xlim() == (0.0, 5.0)
    axes = plot.corner(README, limits={"x": (0.0, 5.0)}, bins=20)
    assert axes[0, 0].get_xlim() == axes[1, 0].get_xlim() == (0.0, 5.0)
    with pytest.raises(ValueError, match="no coordinate 'q'"):
        plot.density_2d(README, ["x", "y"], limits={"q": (0.0, 1.0)})


def test_rows_are_drawn_on_a_density():
    rows = np.array([[9.0, 0.0], [0.0, 0.0], [np.nan, 1.0]])
    ax = plot.density_2d(README, ["y", "x"], data=np.repeat(rows, 30, axis=0), bins=20)
    x, y = ax.lines[0].get_data()
    assert set(zip(x, y, strict=True)) == {(0.0, 9.0), (0.0, 0.0)}
    assert ax.get_ylim()[1] >= 9.0


def test_rows_in_view_lie_over_the_bands():
    """Behind bands of three quarters' opacity dots could not be seen, and of a part of the rows few were in view."""
    rows = np.concatenate([README.sample(3000, seed=0), 100 + README.sample(3000, seed=1)])
    ax = plot.density_2d(README, ["x", "y"], data=rows, limits=((-2, 5), (-2, 3)), points=1000, bins=20)
    dots = ax.lines[0]
    assert len(dots.get_xdata()) == 1000
    assert ax.collections[0].get_zorder() < dots.get_zorder() < ax.collections[1].get_zorder()


def test_components_are_drawn_on_a_field():
    ax = plot.sky(DEGREE, components=True, bins=10)
    assert len(ax.collections[-1].get_segments()) == 2
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("ra [deg]", "dec [deg]")
    east, west = ax.get_xlim()
    assert east > west
    radians = DEGREE.with_(
        units=("rad", "deg"),
        means=DEGREE.means * [np.pi / 180, 1],
        covariances=DEGREE.covariances * np.outer([np.pi / 180, 1], [np.pi / 180, 1]),
    )
    again = plot.sky(radians, components=True, bins=10)
    np.testing.assert_allclose(again.collections[-1].get_segments()[1], ax.collections[-1].get_segments()[1])
    whole = Mixture([1.0], [[10.0, 5.0]], [900 * np.eye(2)], labels=["l", "b"])
    with pytest.raises(ValueError, match="on a part of the sky"):
        plot.sky(whole, components=True, bins=10)


def test_a_field_of_a_degree_fills_the_picture():
    ax = plot.sky(DEGREE, data=DEGREE.sample(100, seed=0), bins=60)
    assert ax.name == "rectilinear"
    east, west = ax.get_xlim()
    assert 228.8 < west < 229.6 < east < 230.5  # east to the left
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("ra [deg]", "dec [deg]")
    mesh = ax.collections[0]
    x, y = np.linspace(west, east, 61), np.linspace(*ax.get_ylim(), 61)
    area = (x[1] - x[0]) * (y[1] - y[0]) * np.cos(np.radians((y[1:] + y[:-1]) / 2))[:, None]
    assert (mesh.get_array() * area).sum() == pytest.approx(1, abs=0.02)
    assert mesh.norm.vmin < mesh.norm.vmax


@pytest.mark.parametrize(
    "pair", [("xi", "eta"), ("RA", "DEC"), ("RA_ICRS", "DE_ICRS"), ("phi1", "phi2"), ("GLON", "GLAT")]
)
def test_positions_are_known_by_the_names_that_catalogues_and_transforms_give(pair):
    field = DEGREE.with_(labels=pair)
    assert plot.sky(field, bins=10).get_xlabel() == f"{pair[0]} [deg]"
    assert suited_kind(field, 0) == "sky"


def test_other_names_of_positions_are_asked_for():
    with pytest.raises(ValueError, match="--coordinates LONGITUDE,LATITUDE; the model has 'a', 'b'"):
        plot.sky(DEGREE.with_(labels=("a", "b")))
    with pytest.raises(ValueError, match="the model has 0, 1"):
        plot.sky(DEGREE.with_(labels=None))


def test_a_spot_on_the_whole_sky_has_a_scale():
    """What used to be 'Invalid vmin or vmax'."""
    ax = plot.new_axes(subplot_kw={"projection": "mollweide"})
    mesh = plot.sky(DEGREE, ax=ax, bins=90).collections[0]
    assert 0 < mesh.norm.vmin < mesh.norm.vmax


def test_limits_choose_a_part_of_the_whole_sky():
    whole = Mixture([1.0], [[180.0, 0.0]], [np.diag([100.0**2, 30.0**2])], labels=["l", "b"], units=["deg", "deg"])
    assert plot.sky(whole, bins=20).name == "mollweide"
    ax = plot.sky(whole, limits={"l": (10.0, 20.0), "b": (-5.0, 5.0)}, bins=20)
    assert ax.get_xlim() == (20.0, 10.0)
    assert ax.get_ylim() == (-5.0, 5.0)


def test_components_of_a_colour_magnitude_diagram_are_seen():
    stars = README.with_(labels=["bp_rp", "phot_g_mean_mag"])
    ax = plot.colour_magnitude(stars, components=True, limits={"bp_rp": (-2.0, 4.0)}, bins=30)
    curves = ax.collections[-1]
    assert len(curves.get_segments()) == 2
    np.testing.assert_allclose(curves.get_colors()[-1, :3], to_rgba(ON_DARK)[:3])
    assert ax.get_xlim() == (-2.0, 4.0)
    assert ax.get_ylim()[0] > ax.get_ylim()[1]


def test_colours_are_known_by_the_names_of_vizier_in_either_order():
    ax = plot.colour_magnitude(README.with_(labels=["Gmag", "BP-RP"]), bins=20)
    assert ax.get_xlabel().startswith("BP-RP")
    assert suited_kind(README.with_(labels=["Gmag", "BP-RP"]), 0) == "cmd"


def test_few_components_are_all_seen():
    weights = np.array([0.97, 0.02, 0.01])
    assert plot.opacity(weights).min() > 0.4


def test_a_legend_says_what_is_what():
    ax = plot.ellipses(README, ["x", "y"], plot.density_2d(README, ["x", "y"], data=README.sample(50, seed=0), bins=20))
    explain(ax)
    assert legend(ax) == {"rows", "components, 1σ", "true density: 2 to 99 % within contours"}
    axes = plot.corner(README, README.sample(50, seed=0), error=0.1 * np.ones((50, 2)), components=True, bins=20)
    assert legend(axes[0, 0]) == {
        "rows", "components, 1σ", "true density: 10 to 99 % within contours", "true density", "expected with noise",
        "histogram of rows",
    }  # fmt: skip
    bare = plot.new_axes()
    explain(bare)
    assert bare.figure.legends == []


@pytest.mark.parametrize("name", ["$\\undefined$", "cost$", "$", "a$b$c$d", "x\x1b[31m\n", "$\\frac{1}{"])
def test_labels_that_are_no_formulas_are_drawn_as_text(name):
    """They made every picture of a model end with an error of Matplotlib's parser, and one of two halves a formula."""
    k, labels, units = [[[1.0, 0.0], [0.0, 1.0]]], [name, "$\\mu_\\alpha$"], ["$/yr", name]
    mixture = Mixture([1.0], [[0.0, 0.0]], k, labels=labels, units=units)
    ax = plot.density_2d(mixture, [0, 1])
    for save in ("png", "svg", "pdf"):
        ax.figure.savefig(io.BytesIO(), format=save, dpi=20)
    assert ax.get_ylabel().startswith("$\\mu_\\alpha$ [")
    assert name.count("$") == 0 or "\\$" in ax.get_xlabel()
    sky = plot.sky(mixture.with_(units=None), [0, 1])
    for picture in (plot.corner(mixture)[1, 0], sky):
        picture.figure.savefig(io.BytesIO(), format="png", dpi=20)


HOSTILE = [
    r"\input{/etc/passwd}", r"$\input{/etc/passwd}$", r"$x$\immediate\write18{id}$y$", r"a\$\input{b}\$",
    "$$\\input{b}$$", r"\\$\input{b}$", "^^5cinput{b}", "$^^5cinput{b}$",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_label_is_no_program_of_latex(name):
    with rc_context({"text.usetex": True}):
        shown = drawable(name)
    commands = set(re.findall(r"\\([A-Za-z]+)", shown))
    assert commands <= {"textbackslash"}
    assert "^^" not in shown


def test_formulas_and_names_of_columns_are_fit_for_latex():
    with rc_context({"text.usetex": True}):
        shown = [drawable(name) for name in ("phot_g_mean_mag", r"$\mu_{\alpha}$ cos 50%", "a & b")]
    assert shown == [r"phot\_g\_mean\_mag", r"$\mu_{\alpha}$ cos 50\%", r"a \& b"]
