"""Minibatch EM keeps a start that was searched, and forgets one that was not."""

import numpy as np
import torch

from xdeconv.fitting.words import Worded, choose_method
from xdeconv.rows.batch import Batch
from xdeconv.rows.data import ArraySource


def first_step(rows: int, searched: int, batch_rows: int) -> float:
    source = ArraySource(Batch.from_arrays(np.random.default_rng(0).normal(size=(rows, 3)), np.ones(3)))
    chosen = choose_method(source, 4, torch.device("cpu"), Worded("minibatch-em"), batch_rows, searched=searched)
    return chosen.method.step(0.0)


def test_the_first_step_forgets_less_of_a_searched_start():
    assert first_step(8000, 0, batch_rows=80) == 0.833  # of 8 rows for each number of a mean
    assert first_step(8000, 1 << 17, batch_rows=80) == 0.32  # of a 32nd of the rows that there are
    assert first_step(4000, 1 << 17, batch_rows=80) == 0.5  # of 4 for each free number
    assert first_step(1000, 1 << 17, batch_rows=80) == 0.64  # but at most of an eighth of the rows that there are
