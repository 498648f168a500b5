"""Float32 for a search on a CPU: trials only propose, and cost half; passes in float64 then say what they are worth."""

from __future__ import annotations

import torch

from ..kernels.options import DEFAULT, Options
from ..kernels.parameters import Parameters
from ..rows.batch import Batch
from .aim import ANY, Aim
from .sums import total_log_prob

WORK = 1 << 25  # multiplications of a pass, about: with fewer, there is nothing to save
COARSE = 2e-6  # of the log-likelihood, relative: float32 has 1e-7 where rows and mixture allow it


def worth_single(batch: Batch, k: int) -> bool:
    """Whether a search on rows in float64 would be quicker in float32: on a GPU, rows are in the user's type."""
    work = batch.n * k * max(batch.d, batch.p) ** 3
    return batch.device.type == "cpu" and batch.dtype == torch.float64 and work > WORK


def agree(parameters: Parameters, batch: Batch, aim: Aim = ANY, options: Options = DEFAULT) -> bool:
    """Whether a mixture has the log-likelihood in float32 that it has in float64, almost."""
    single, double = (
        total_log_prob(parameters, batch.to(dtype=kind), aim, options) for kind in (torch.float32, torch.float64)
    )
    return abs(single - double) < COARSE * (abs(double) + float(batch.total_weight()))
