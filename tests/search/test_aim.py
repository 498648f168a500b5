"""A search for components whose covariances have a structure: every move, and what comes of it, has it too."""

import numpy as np
import pytest
import torch

from xdeconv import Batch, Mixture, Moves
from xdeconv.fitting.choosing.walking import smaller
from xdeconv.kernels.parameters import Parameters
from xdeconv.methods import Prior, as_structure
from xdeconv.rows.data import ArraySource
from xdeconv.search.aim import Aim
from xdeconv.search.moves import Search
from xdeconv.search.passes import em_passes
from xdeconv.search.pool import Pool
from xdeconv.search.pruning import pruned
from xdeconv.search.sums import total_log_prob
from xdeconv.search.trials import Effort, try_merges, try_splits

WORDS = ["tied", "diagonal", "spherical", "low-rank:1"]


def clumps() -> Batch:
    """Three clumps of 300 rows in four dimensions, two of them near each other."""
    rng = np.random.default_rng(5)
    centers = np.array([[-6.0, 0, 0, 0], [3.0, 2, 0, 0], [3.0, -2, 0, 0]])
    error = rng.uniform(0.2, 0.5, size=(900, 4))
    v = centers[rng.integers(3, size=900)] + 0.6 * rng.normal(size=(900, 4))
    return Batch.from_arrays(v + error * rng.normal(size=v.shape), error=error)


BATCH = clumps()
BAD = Mixture([0.3, 0.3, 0.4], [[-6.5, 0, 0, 0], [-5.5, 0, 0, 0], [3.0, 0, 0, 0]], np.eye(4)[None].repeat(3, 0))


def off(word: str, V: torch.Tensor) -> float:
    """How far covariances are from a structure."""
    right = as_structure(word).nearest(V, torch.ones(len(V), dtype=V.dtype)).V
    return float((right - V).abs().max())


@pytest.mark.parametrize("word", WORDS)
def test_a_search_finds_the_clumps_and_keeps_the_structure(word):
    aim = Aim(None, as_structure(word))
    start = em_passes(BAD.tensors(), BATCH, 20, aim)
    found = Search(BATCH, Moves(), np.random.default_rng(0), aim).run(start)
    assert found.moved
    assert total_log_prob(found.parameters, BATCH) > total_log_prob(start, BATCH) + 100
    assert sorted(found.parameters.means[:, 1].round().tolist()) == [-2.0, 0.0, 2.0]
    assert off(word, found.parameters.covariances) < 1e-4


@pytest.mark.parametrize("word", WORDS)
def test_trials_have_the_structure(word):
    aim = Aim(Prior(w=0.01), as_structure(word))
    start = em_passes(BAD.tensors(), BATCH, 20, aim)
    search = Search(BATCH, Moves(), np.random.default_rng(0), aim)
    search.run(start)
    pool, effort = Pool.of(start, search.rows), Effort(4, 500, 4, aim)
    changes = try_splits([0, 2], start, pool, effort, np.random.default_rng(0))
    changes += try_merges([(0, 1)], start, pool, effort, np.random.default_rng(0))
    for change in changes:
        V = change.new.covariances
        assert off("low-rank:1" if "rank" in word else word, V) < (0.05 if "rank" in word else 1e-9)
        if word == "tied":
            torch.testing.assert_close(V, start.covariances[:1].expand_as(V))


@pytest.mark.parametrize("word", WORDS)
def test_fewer_components_have_the_structure(word):
    aim = Aim(None, as_structure(word))
    left = pruned(em_passes(BAD.tensors(), BATCH, 20, aim), 2, BATCH, aim)
    assert left.k == 2
    assert off(word, left.covariances) < 1e-4
    mixture = Mixture(BAD.weights, BAD.means, BAD.covariances, structure=word)
    assert smaller(mixture, 2, ArraySource(BATCH), 0).structure == word


def test_a_part_of_the_rows_has_its_share_of_the_prior():
    aim = Aim(Prior(w=2.0, c=3.0), as_structure("tied"))
    assert aim.scaled(0.5) == Aim(Prior(w=1.0, c=1.5), as_structure("tied"))
    assert Aim().scaled(0.5) == Aim()


def test_a_prior_counts_once_per_group_of_components():
    groups = Parameters(*(torch.stack([t, t]) for t in BAD.tensors()))
    once = Aim(Prior(w=2.0, c=3.0)).log_density(BAD.tensors())
    torch.testing.assert_close(Aim(Prior(w=2.0, c=3.0)).log_density(groups), torch.stack([once, once]))
    assert float(once) == pytest.approx(-0.5 * 3 * 4 * 2.0)
    assert not Aim().log_density(groups).any()
