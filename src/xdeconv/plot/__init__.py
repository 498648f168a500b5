"""Pictures of a mixture: functions that take a Mixture, draw on matplotlib axes and return them.

Labels and units come from the model. Densities are the closed form, on a grid, never a histogram of draws. Rows are
given as everywhere: ``data`` (n, d) with NaN for missing, ``noise`` as variances or ``error`` as standard deviations.

>>> from xdeconv import Mixture, plot
>>> mixture = Mixture([1.0], [[0.0, 1.0]], [[[1.0, 0.5], [0.5, 1.0]]], labels=["x", "y"], units=["mas", "mag"])
>>> plot.density_2d(mixture, ["x", "y"]).get_xlabel()
'x [mas]'
"""

from .axes import axis_title, explain, new_axes, opacity
from .calibrating import calibration
from .components import ellipses
from .conditionals import conditional_1d, conditional_map
from .convolving import noisy_density
from .denoising import denoised
from .densities import density_2d, enclosing_levels, marginal_1d
from .misfitting import misfit
from .photometry import colour_magnitude
from .probabilities import pit
from .skymap import sky
from .training import history
from .triangle import corner
from .viewing import span

__all__ = [
    "axis_title",
    "calibration",
    "colour_magnitude",
    "conditional_1d",
    "conditional_map",
    "corner",
    "denoised",
    "density_2d",
    "ellipses",
    "enclosing_levels",
    "explain",
    "history",
    "marginal_1d",
    "misfit",
    "new_axes",
    "noisy_density",
    "opacity",
    "pit",
    "sky",
    "span",
]
