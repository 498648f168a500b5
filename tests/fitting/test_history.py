"""Callbacks: one method, and the CSV logger that has it."""

import csv

import numpy as np

import xdeconv as xd

X = np.random.default_rng(0).normal(size=(60, 1))


def lines_of(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def fit(**options):
    return xd.fit(X, 2, method=xd.EM(), seed=1, tol=0, start="random", **options)


def test_a_function_is_a_callback():
    seen = []
    result = fit(epochs=3, callback=seen.append)
    assert tuple(seen) == result.history


def test_the_csv_has_a_line_for_each_epoch(tmp_path):
    result = fit(epochs=3, restarts=2, validation=0.2, callback=xd.CSVLogger(tmp_path / "a.csv"))
    lines = lines_of(tmp_path / "a.csv")
    assert [(int(x["restart"]), int(x["epoch"])) for x in lines] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert [float(x["loglik"]) for x in lines] == [record.loglik for record in result.history]
    assert [float(x["validation"]) for x in lines] == [record.validation for record in result.history]


def test_a_new_fit_starts_anew_and_a_resumed_one_goes_on(tmp_path):
    logger, saved = xd.CSVLogger(tmp_path / "a.csv"), tmp_path / "fit.checkpoint"
    fit(epochs=4, callback=logger)
    fit(epochs=2, callback=logger, checkpoint=saved)
    assert len(lines_of(tmp_path / "a.csv")) == 2
    fit(epochs=5, callback=logger, checkpoint=xd.Checkpoint(saved, resume=True))
    assert [int(x["epoch"]) for x in lines_of(tmp_path / "a.csv")] == [0, 1, 2, 3, 4]
