"""The paper's experiment: its small setting, and the parts that the large one relies on."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.paper import experiment, methods
from benchmarks.paper import report as reports
from benchmarks.paper.quick import quick
from benchmarks.paper.rows import PRESETS, SHARES, Table, mean_log_prob, noisier
from benchmarks.paper.store import Store

import xdeconv as xd

DOCS = Path(__file__).parents[2] / "docs"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def rows():
    return Table(None, 2000, "cpu").prepared(PRESETS[0])


def run(method="em", k=64, seed=0, seconds=1.0, validation=-17.0, preset=PRESETS[0], data="simulated, 10 rows"):
    scores = {name: validation for part in ("train", "validation", "test") for name in (part, f"{part}_filled")}
    machine = {"processor": "P", "cores": 2, "gpu": None, "python": "3", "torch": "2", "commit": "c"}
    return {
        "data": data, "preset": preset, "method": method, "k": k, "seed": seed, "seconds": seconds, "epochs": 20,
        "rows": {"train": 8, "validation": 1}, "machine": machine, "notes": [], "curve": [(1.0, -18.0), (2.0, -17.0)],
        **scores,
    }  # fmt: skip


def test_the_small_setting_has_the_shape_of_the_paper(tmp_path):
    runs = quick(tmp_path)
    assert {(r["method"], r["seed"]) for r in runs} == {(m, 0) for m in methods.EXPERIMENT}
    assert list(tmp_path.glob("*-figure-1.png"))


def test_three_parts_share_no_row_and_keep_them_all(rows):
    parts = [p.batch for p in (rows.train, rows.validation, rows.test)]
    assert [p.n for p in parts] == [int(2000 * SHARES[0]), 200, 200]
    assert len(torch.cat([p.x[:2] for p in parts], 1).T.unique(dim=0)) == 2000


def test_the_presets_differ_as_the_text_and_the_code_do(rows):
    code = Table(None, 2000, "cpu").prepared(PRESETS[1])
    assert rows.train.batch.x[5].isnan().any()
    assert not code.train.batch.x[5].isnan().any()
    assert float(rows.train.batch.noise[-1].max()) == pytest.approx(1e-2)
    assert float(code.train.batch.noise[-1].max()) == pytest.approx(1e-4)


def test_a_fill_costs_its_constant(rows):
    mixture = xd.Mixture([1.0], [rows.train.batch.x.nanmean(1).tolist()], [np.diag([1e4, 1e3, 4, 50, 50, 1, 4.0])])
    scores = rows.scores(mixture)
    missing = float(rows.test.batch.x.isnan().double().sum(0).mean())
    constant = 0.5 * np.log(2 * np.pi * 1e12)
    assert scores["test"] - scores["test_filled"] == pytest.approx(missing * constant)


def test_a_floor_under_covariances_is_noise_of_the_rows(rows):
    narrow = xd.fit(noisier(rows.train, 1e-3), 3, method=xd.EM(), epochs=3, device="cpu").mixture
    raised = methods.raised(narrow, 1e-3)
    assert np.linalg.eigvalsh(raised.covariances).min() > 0.99e-3
    there, here = mean_log_prob(narrow, noisier(rows.train, 1e-3).batch), mean_log_prob(raised, rows.train.batch)
    assert there == pytest.approx(here, abs=1e-9)
    assert there != pytest.approx(mean_log_prob(narrow, rows.train.batch), abs=1e-6)


def test_runs_are_appended_and_not_made_twice(tmp_path, capsys):
    words = ["--rows", "600", "--components", "2", "--methods", "em", "--seeds", "2", "--out", str(tmp_path)]
    experiment.main([*words, "--device", "cpu"])
    store = Store(tmp_path / "paper.json")
    first = store.runs()
    assert [(r["method"], r["k"], r["seed"]) for r in first] == [("em", 2, 0), ("em", 2, 1)]
    experiment.main([*words, "--device", "cpu"])
    assert store.runs() == first
    assert not list(tmp_path.glob("*.new"))


def test_a_run_that_would_not_fit_is_not_begun(tmp_path, capsys):
    store = Store(tmp_path / "paper.json")
    store.add(run(k=64, seconds=10.0, data="simulated, 600 rows"))
    assert store.expected_seconds("em", 256, "simulated, 600 rows") == 40.0
    session = experiment.Session(Table(None, 600, "cpu"), store, budget=30.0)
    assert session.time_for("em", 64)
    assert not session.time_for("em", 256)
    experiment.make(session, iter([(PRESETS[0], "em", 256, 0)]))
    assert len(store.runs()) == 1
    assert "run again" in capsys.readouterr().out


def test_every_method_and_k_gets_a_seed_before_any_gets_the_next():
    plan = list(experiment.planned(experiment.parse(["--seeds", "10", "--seeds-large", "3"])))
    assert {(m, k) for _, m, k, _ in plan[:16]} == {(m, k) for m in methods.EXPERIMENT for k in experiment.COMPONENTS}
    assert len(plan) == 4 * (2 * 10 + 2 * 3)


def test_the_report_fills_the_page(tmp_path, capsys):
    store = Store(tmp_path / "paper.json")
    for method in methods.EXPERIMENT:
        for seed in range(2):
            store.add(run(method, 512, seed, seconds=50.0, validation=-17.0 - seed + (method == "xdeconv")))
    docs = tmp_path / "docs"
    docs.mkdir()
    shutil.copy(DOCS / "paper.md", docs)
    reports.report(store, docs)
    page = (docs / "paper.md").read_text()
    assert "-17.500 ± 0.707 (2)" in page
    assert "target" not in page
    assert "commit" not in page.split("<!-- begin results -->")[1].split("<!-- end results -->")[0]
    full = (tmp_path / "RESULTS.md").read_text()
    assert "| simulated, 10 rows: SGD, seconds | < 40 | 50 | **no** |" in full
    assert "| simulated, 10 rows: xdeconv, seconds | < 60 | 50 | yes |" in full
    for picture in (docs / "paper").iterdir():
        assert f"(paper/{picture.name})" in page
    (docs / "paper.md").write_text("nothing")
    with pytest.raises(ValueError, match="has no place for 'results'"):
        reports.report(store, docs)
