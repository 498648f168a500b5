"""Sky coordinates and velocities as features: tangent planes, Galactic coordinates, any rotation, (U, V, W).

>>> import numpy as np
>>> table = {"ra": np.zeros(1), "dec": np.zeros(1), "parallax": np.full(1, 10.0), "pmra": np.full(1, 100.0),
...          "pmdec": np.zeros(1), "parallax_error": np.full(1, 0.1), "pmra_error": np.full(1, 0.1),
...          "pmdec_error": np.full(1, 0.1)}
>>> found = velocities(table)
>>> found.x.round(2), found.noise[0, 0, 0].round(3), found.projection.shape
(array([[47.4,  0. ,  nan]]), np.float64(0.227), (1, 3, 3))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..rows.galactic import KM_S
from ._open import open as open_catalog
from .coordinates import NAMED, Rotation, galactic, parse_transform, rotation, tangent
from .transforms import Transform
from .velocities import SpaceVelocity

Array = np.ndarray
__all__ = ["KM_S", "NAMED", "Rotation", "SpaceVelocity", "Transform", "Velocities", "galactic", "parse_transform",
           "rotation", "tangent", "velocities"]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Velocities:
    """What is seen of the space velocities of n stars: ``xd.fit(found.x, k, **found.arrays)``.

    Parameters
    ----------
    x : array (n, 3)
        Towards east, north and away from us in km/s; NaN where there is no radial velocity.
    noise : array (n, 3, 3)
        Covariances in km^2/s^2.
    projection : array (n, 3, 3)
        Takes a heliocentric (U, V, W) to x.
    labels : tuple of str
        U, V, W.
    units : tuple of str
        km/s, three times.
    """

    x: Array
    noise: Array
    projection: Array
    labels: tuple[str, ...] = ("U", "V", "W")
    units: tuple[str, ...] = ("km/s", "km/s", "km/s")

    @property
    def arrays(self) -> dict[str, Any]:
        """Noise, projection, labels and units, by the names that ``xd.fit`` has for them."""
        return {"noise": self.noise, "projection": self.projection, "labels": self.labels, "units": self.units}


def velocities(table: Any, **options: Any) -> Velocities:
    """Galactic velocities of stars, with their noise, from positions, parallaxes and proper motions.

    The radial velocity is used in the rows that have one. Errors and correlations are found by name, as
    :func:`xdeconv.open` does. Stars without a positive parallax are refused: leave them out with
    ``where="parallax_over_error > 10"`` or the like, since noise is propagated to first order.

    Parameters
    ----------
    table : table, path or list of paths
        Whatever ``xd.open`` reads, with the names of Gaia, VizieR or DESI.
    **options : dict
        Other arguments of ``xd.open``: where, error, correlation, unit, bad_rows, ...

    Returns
    -------
    Velocities
        Arrays for :func:`xdeconv.fit`: x, noise and projection, in km/s.
    """
    batch = open_catalog(table, ["U", "V", "W"], derive="velocities", **options).load().batch
    assert batch.projection is not None
    projection = batch.projection.permute(2, 0, 1).numpy()
    return Velocities(batch.x.T.numpy(), batch.covariance().numpy(), projection)
