"""Small versions of the studies behind error bars, the choice of K, p-values, checks and memberships."""

import numpy as np
import pytest
from benchmarks.coverage import measure as coverage
from benchmarks.judging import members, verdicts
from benchmarks.outliers import measure as outliers
from benchmarks.selecting import cluster
from benchmarks.selecting import measure as selecting


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["noise 1", "noise 2", "a third missing"])
def test_intervals_hold_the_truth_as_often_as_they_say(kind):
    records = [coverage.measure(kind, seed, coverage.by_errors, n=2000) for seed in range(6)]
    known = sum(record["known"] for record in records)
    inside = [sum(record["inside"][i] for record in records) / known for i in range(2)]
    assert known > 0.9 * 6 * records[0]["of"]
    assert 0.5 < inside[0] < 0.86
    assert 0.85 < inside[1] <= 1.0
    assert len(coverage.table([{"way": "errors", **record} for record in records]).splitlines()) == 3


@pytest.mark.slow
def test_a_known_number_of_components_is_chosen_with_little_regret():
    seeds = [seed for seed in range(20) if selecting.truth(seed, "apart")[0].k <= 3][:2]
    records = [selecting.regret(seed, "apart", fresh_rows=5000, most=5) for seed in seeds]
    assert np.mean([record["regret"] for record in records]) < 0.005
    assert all(record["chosen"] == record["known"] for record in records)
    assert "xd.select" in selecting.table(records)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.55, 0.03])
def test_a_cluster_in_a_field_is_given_its_components(share):
    """Eight components are better than two by many paired errors, though hardly by one of the score itself."""
    found = cluster.measure(share, 0, fresh_rows=20_000, most=6)
    assert found["of two"] == 8
    assert found["paired errors"] > 5
    assert found["regret"] < found["unpaired regret"] / 2
    assert "8" in cluster.table([found])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["selected", "errors too small"])
def test_intervals_of_models_with_more_than_components(kind):
    records = [coverage.measure(kind, seed, coverage.by_errors, n=2000) for seed in range(4)]
    inside = [sum(record["inside"][i] for record in records) / sum(record["known"] for record in records)
              for i in range(2)]  # fmt: skip
    assert 0.45 < inside[0] < 0.9
    assert 0.85 < inside[1] <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("shown", outliers.SHOWN)
def test_p_values_are_quick_and_uniform(shown):
    line = outliers.measure("overlapping", shown, 3000, each=1)
    distance, limit = (float(word.strip("()")) for word in line[4].split())
    assert distance < 1.4 * limit  # one in a thousand is farther
    assert float(line[3]) < 0.5  # ms


@pytest.mark.slow
@pytest.mark.parametrize("name", verdicts.CASES)
def test_checks_name_what_is_wrong_of_random_models(name):
    case = verdicts.CASES[name]
    texts = [verdict.text for seed in range(3) for verdict in verdicts.judged(case, seed).verdicts]
    assert sum(verdicts.right(case, text) for text in texts) >= 5


@pytest.mark.slow
def test_rare_members_whose_errors_differ_are_calibrated_by_error():
    found = {way: np.concatenate(values) for way, values in members.asked("errors differ", 5).items()}
    rare = found.pop("truth")
    for way in ("training, by error", "fitted, by error"):
        away, error, _ = members.calibration(found[way], rare)
        assert away < 0.02 + 2 * error, way
    for way in ("training", "given", "fitted", "equal"):
        assert members.calibration(found[way], rare)[0] > 0.1, way
