"""What the demo finds: moving groups, how well one velocity follows from another, and where it was written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..mixture._mixture import Mixture

Array = np.ndarray
GROUPS = {"Sirius": (9.0, 3.0), "Pleiades": (-12.0, -22.0), "Hyades": (-40.0, -20.0), "Hercules": (-30.0, -50.0)}
ONE_PLACE = 0.2  # nats of all stars together by which ends of one place may differ: each may have 0.1 left
NEAR = 8.0  # km/s: how far from a group's place in the literature its maximum may lie


@dataclass(frozen=True)
class Group:
    """A moving group: its (U, V) in the literature, what the fit shows, where, at what distance in km/s.

    ``again`` has the verdicts of fits to resamples of the stars.
    """

    name: str
    literature: tuple[float, float]
    verdict: str
    found: tuple[float, float] | None
    distance: float | None
    again: tuple[str, ...] = ()

    @property
    def agree(self) -> int:
        """How many resamples give the same verdict."""
        return self.again.count(self.verdict)


@dataclass(frozen=True)
class Prediction:
    """How well one tangential component follows from the other, in nats per star, and the gain over one Gaussian.

    ``gain_error`` is the scatter of the gain among stars.
    """

    mixture: float
    gaussian: float
    gain_error: float

    @property
    def gain(self) -> float:
        return self.mixture - self.gaussian


@dataclass(frozen=True, eq=False)
class Demo:
    """What the demo found and where it wrote it.

    ``heights`` has the log-likelihood of all stars, with that of the prior, where the fit from each seed ended.
    """

    mixture: Mixture
    stars: int
    groups: tuple[Group, ...]
    maxima: Array
    prediction: Prediction
    model: Path
    picture: Path
    seconds: float
    heights: tuple[float, ...] = ()

    @property
    def together(self) -> int:
        """From how many seeds the fit ended as high as from the best, but for what each may have left."""
        return sum(max(self.heights) - height < ONE_PLACE for height in self.heights)
