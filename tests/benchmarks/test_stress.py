"""The stress parts, small: what the long runs count must hold for a few inputs in every run of the tests."""

import argparse

import numpy as np
import pytest
from benchmarks.stress import changes, damage, forks, kills, limits, run, soak

from xdeconv.cli.app import app


def arguments(**values):
    return argparse.Namespace(**{"seed": 3, **values})


@pytest.mark.slow
def test_damaged_files_of_every_kind(tmp_path):
    rows, remarks = damage.part(tmp_path, arguments(inputs=150))
    assert rows[-1][1] == "150"
    assert rows[-1][-1] == "0", remarks


def test_every_command_that_reads_a_file_is_given_damaged_ones():
    given = {words[0] for _, words in damage.DATA.values()} | {words[0] for _, words in damage.MODELS.values()}
    commands = {command.name or command.callback.__name__ for command in app.registered_commands}
    assert commands - given == {"demo", "simulate"}  # which read none


def test_no_two_inputs_are_the_same(tmp_path):
    sounds = [
        damage.Sound(kind, tmp_path, tmp_path) for kind in ("parquet", "model", "checkpoint", "results", "config")
    ]
    every = damage.combinations(sounds)
    assert {(sound.kind, how) for sound, how, _, _ in every} == {
        (s.kind, how) for s in sounds for how in damage.DAMAGES
    }


@pytest.mark.slow
def test_files_that_change(tmp_path):
    assert set(changes.outcomes(tmp_path, "csv.gz").values()) == {"refused by name"}


@pytest.mark.slow
def test_disks_that_fill_and_clocks_that_jump(tmp_path, monkeypatch):
    few = ("fit", "posterior, CSV.gz", "export, FITS", "plot", "prepare")
    monkeypatch.setattr(limits, "WRITERS", {name: limits.WRITERS[name] for name in few})
    limits.make(tmp_path)
    monkeypatch.chdir(tmp_path)
    for what, expected, seen in [*limits.full_disks(tmp_path), *limits.jumping_clocks(tmp_path)]:
        assert seen == expected, what


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["select", "bootstrap", "prepare"])
def test_programs_that_are_killed_can_be_run(kind, tmp_path):
    kills.write_rows(tmp_path / "rows.parquet")
    (tmp_path / "here").mkdir()
    assert kills.run(kind, tmp_path / "here", None) is not None
    assert kills.equal(tmp_path / "here" / "result", tmp_path / "here" / "result")


def test_ways_to_start_children_are_all_there():
    assert {way.partition(",")[0] for way in forks.WAYS} >= {"os.fork", "Process", "Pool", "joblib", "Dask"}


@pytest.fixture
def short_soak(monkeypatch):
    def missing(desk, seed):
        raise ModuleNotFoundError("no such library", name="library")

    def wavers(desk, seed):
        return np.random.default_rng().normal(size=2)

    def fails(desk, seed):
        raise ValueError("as it must")

    steady = soak.TASKS["models_as_files"]
    monkeypatch.setattr(soak, "TASKS", {"steady": steady, "missing": missing, "wavers": wavers, "fails": fails})
    monkeypatch.setattr("benchmarks.stress.soak_tasks.TASKS", soak.TASKS)


@pytest.mark.slow
def test_a_soak_tells_what_differs_what_fails_and_what_is_missing(short_soak, tmp_path):
    rows, remarks = soak.part(tmp_path, arguments(minutes=0.1, device="cpu", rows=200))
    assert [row[0] for row in rows[:3]] == ["rounds", "host memory (MiB)", "open descriptors"]
    text = "\n".join(remarks)
    assert "tasks of 3 kinds on 200 rows" in text
    assert "- other bits: wavers" in text
    assert "fails: ValueError: as it must" in text
    assert "- not asked (library not installed there): missing" in text
    assert "steady" not in text


def test_every_task_of_a_soak_is_asked_by_its_name():
    assert len(soak.TASKS) >= 50
    assert {"plain_fit", "wrong_inputs", "cancelled_fits", "choice_of_components"} <= soak.TASKS.keys()


def test_what_was_found_elsewhere_becomes_a_section_here():
    outcome = {"part": "soak", "command": "python -m x", "machine": run.about(), "seconds": 1.0,
               "header": ["a", "b"], "rows": [["1", "2"]], "remarks": ["said."]}  # fmt: skip
    text = run.text_of(outcome)
    assert text.startswith("`python -m x` on ")
    assert text.endswith("| 1 | 2 |\n\nsaid.")
    assert run.title_of(outcome) == "Stress: soak"  # of a GPU, which one of a CPU leaves as it is
    assert run.title_of({**outcome, "command": "python -m x --device cpu"}) == "Stress: soak on a CPU"
