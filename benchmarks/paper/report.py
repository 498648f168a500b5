"""Tables and figures of the paper's experiment, from what its runs saved."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import xdeconv as xd
from benchmarks.common.results import describe, table
from benchmarks.paper import figures
from benchmarks.paper.methods import EXPERIMENT, TITLES
from benchmarks.paper.rows import PRESETS
from benchmarks.paper.store import Run, Store, slug

# Minutes of 20 epochs and validation log-likelihood (filled), as the authors recorded them: Gaia DR2, eight CPU cores
# for existing EM and one GPU of 2019 for the others.
Published = dict[int, dict[str, tuple[float, float]]]
PUBLISHED: Published = {
    64: {"em": (55.5, -26.10), "minibatch": (31.0, -26.05), "sgd": (28.0, -25.89)},
    128: {"em": (100.3, -25.96), "minibatch": (47.0, -25.91), "sgd": (36.4, -25.77)},
    256: {"em": (195.5, -25.76), "minibatch": (55.2, -25.83), "sgd": (40.5, -25.67)},
    512: {"em": (385.6, -25.67), "minibatch": (100.5, -25.80), "sgd": (64.8, -25.59)},
}
AS_MANY = 1_000_000  # training rows, about, that the paper's times are for
THREE = EXPERIMENT[:3]
HEAD = "# The paper's experiment\n\nWritten by `python -m benchmarks.paper --report`; docs/paper.md explains.\n"
CAPTIONS = {
    "1": "Training log-likelihood against time, and time against K",
    "2": "Sky density of rows and of draws from the model",
}
FLOORS = ("minibatch-free", "minibatch-floor", "minibatch", "sgd-free", "sgd-floor", "sgd")
LEADS = (("", "as the paper set them"), ("-floor", "both with the floor"), ("-free", "both without"))
AS_SET = {"minibatch": "minibatch EM, w I added as in the paper", "sgd": "SGD, w / trace V as in the paper"}
DIFFERENCES = [
    ("rows", "Gaia DR2, `random_index < 2000000`", "simulated rows of the same columns, or any table with them",
     "anybody can make them again; a download of DR2 takes their place when there is one"),
    ("variance of columns without error", "text 1e-2, code 1e-4", "1e-2", "preset `paper-2019` is the text; "
     "`paper-2019-code` is the code"),
    ("missing colour", "text: missing; code: the value 0 with variance 1e-4", "missing",
     "the value 0 is a false spike"),
    ("missing values", "filled in, with variance 1e12", "marginalised exactly", "1e12 ruins float32; both likelihoods "
     "are given, since they differ by a constant"),
    ("errors of ra and dec", "mas taken as degrees", "converted to degrees, ra divided by cos dec",
     "positions are known to a milliarcsecond, not to a degree"),
    ("SGD's penalty", "text w / trace V; code the sum of w / V_dd", "w / trace V", "as the text has it"),
    ("SGD's rate", "text: a tenth after epoch 10; code: also after 15", "a tenth after epoch 10", "as the text has it"),
    ("SGD's steps", "in the units of the rows", "in the tables here as there; today relative to the widths of "
     "components", "steps of one size are many widths of a narrow component"),
    ("minibatch EM", "`adjust`, in which m m^T cancels", "the same step, centred on the current mean",
     "the same fixed points; float32 is enough"),
    ("existing EM", "Bovy's C code on CPUs", "the same updates by our kernel, 20 passes", "one engine, one clock"),
    ("likelihood in Figure 1", "evaluated after epochs", "what each epoch met on its way: EM's before its update, the "
     "others' while they move", "costs nothing"),
]  # fmt: skip


def report(store: Store, docs: Path | None) -> None:
    """Write every table and the figures beside the runs; with ``docs``, what a reader wants into its paper.md."""
    runs = store.runs()
    out = store.path.parent
    names = sorted({run["data"] for run in runs}, key=lambda name: (not name.startswith("simulated"), name))
    mine = {name: [run for run in runs if run["data"] == name] for name in names}
    pictures = {name: drawn(name, of, out) for name, of in mine.items()}
    full = "\n\n".join(_everything(name, of) for name, of in mine.items())
    blocks = {"results": full, "floor": floor(runs), "targets": targets(runs)}
    text = "\n\n".join(f"## {name.capitalize()}\n\n{body}" for name, body in blocks.items())
    (out / "RESULTS.md").write_text(f"{HEAD}\n{text}\n")
    print((out / "RESULTS.md").read_text())
    if docs is not None:
        short = "\n\n".join(_in_short(name, of, pictures[name]) for name, of in mine.items())
        fill_in(docs / "paper.md", {"results": short, "floor": floor(runs), "differences": differences()})
        (docs / "paper").mkdir(exist_ok=True)
        for path in (path for some in pictures.values() for path in some):
            shutil.copy(path, docs / "paper" / path.name)


def _main_runs(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if run["preset"] == PRESETS[0] and run["method"] in EXPERIMENT]


def _alone(runs: Sequence[Run]) -> list[Run]:
    return [run for run in _main_runs(runs) if run.get("alone", True)]


def _published(runs: Sequence[Run]) -> Published:
    return PUBLISHED if runs[0]["rows"]["train"] >= AS_MANY else {}


def drawn(data: str, runs: Sequence[Run], out: Path) -> list[Path]:
    """The figures of one table of rows that can be drawn from what was saved."""
    pictures, name = [], slug(data)
    if _alone(runs):
        first = figures.figure_1(_alone(runs), _published(runs))
        pictures.append(figures.save(first, out / f"{name}-figure-1.png"))
    model, sky = out / f"{name}.safetensors", out / f"{name}.npy"
    if model.exists():
        second = figures.figure_2(xd.load(model), np.load(sky))
        pictures.append(figures.save(second, out / f"{name}-figure-2.png"))
    return pictures


def _everything(data: str, runs: Sequence[Run]) -> str:
    """The section of one table of rows with every number, machine and commit."""
    main = _main_runs(runs)
    if not main:
        return ""
    truth = [run for run in runs if run["method"] == "truth"]
    return "\n\n".join([f"### {data}", _where(main), *_tables(main, truth), *_seconds(runs)])


def _in_short(data: str, runs: Sequence[Run], pictures: Sequence[Path]) -> str:
    """The section of one table of rows for a reader: likelihoods, seconds and pictures."""
    main = _main_runs(runs)
    if not main:
        return ""
    truth = [run for run in runs if run["method"] == "truth"]
    shown = [f"![{CAPTIONS[path.stem[-1]]}](paper/{path.name})" for path in pictures]
    return "\n\n".join([f"### {data}", _where(main, commits=False), *_tables(main, truth)[:2], *_seconds(runs), *shown])


def _seconds(runs: Sequence[Run]) -> list[str]:
    if not _alone(runs):
        return []
    minutes = " (the paper's minutes in brackets)" if _published(runs) else ""
    title = f"Seconds of training, mean over runs alone on the device{minutes}:"
    return [title, seconds(_alone(runs), _published(runs))]


def _where(runs: Sequence[Run], commits: bool = True) -> str:
    known: dict[str, dict[str, None]] = {}  # of each machine, in the order of runs
    for run in runs:
        commit = str(run["machine"]["commit"])
        machine = describe(run["machine"]).removesuffix(f", commit {commit}.")
        known.setdefault(machine, {})[commit] = None
    machines = [f"{machine} (commits {', '.join(mine)})" if commits else machine for machine, mine in known.items()]
    rows = runs[0]["rows"]
    return (
        f"{rows['train']:,} rows train and {rows['validation']:,} validate. Seconds include the start and all epochs, "
        f"after one warm-up that compiles kernels. Measured on {' and '.join(machines)}."
    )


def _tables(runs: Sequence[Run], truth: Sequence[Run]) -> list[str]:
    """Table 1, exact and filled; the test rows at the best k."""
    exact, filled = (scores(runs, truth, name) for name in ("validation", "validation_filled"))
    return [
        "Validation log-likelihood per row, mean ± standard deviation (runs), exactly marginalised:", exact,
        "The same with the paper's constant for every value filled in:", filled,
        "Test log-likelihood at the K that validates best:", best_test(runs),
    ]  # fmt: skip


def cell(values: Sequence[float], digits: int = 3) -> str:
    if not values:
        return ""
    spread = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{spread} ({len(values)})"


def chosen(runs: Sequence[Run], method: str, k: int, what: str, preset: str = PRESETS[0]) -> list[float]:
    """One number of all runs of a kind; seconds only of runs that had the device to themselves."""
    mine = [run for run in runs if (run["method"], run["k"], run["preset"]) == (method, k, preset)]
    return [run[what] for run in mine if what != "seconds" or run.get("alone", True)]


def sizes(runs: Sequence[Run]) -> list[int]:
    return sorted({run["k"] for run in runs})


def scores(runs: Sequence[Run], truth: Sequence[Run], what: str) -> str:
    """Methods across, k down, and the truth's own score in the last row where it is known."""
    lines = [[str(k), *(cell(chosen(runs, m, k, what)) for m in EXPERIMENT)] for k in sizes(runs)]
    for run in truth:
        if run["preset"] == PRESETS[0]:
            lines.append([f"truth (K = {run['k']})", f"{run[what]:.3f}", "", "", ""])
    return table(["K", *(TITLES[m] for m in EXPERIMENT)], lines)


def best_test(runs: Sequence[Run]) -> str:
    lines = []
    for m in EXPERIMENT:
        known = [k for k in sizes(runs) if chosen(runs, m, k, "validation")]
        if known:
            k = max(known, key=lambda size: np.mean(chosen(runs, m, size, "validation")))
            lines.append([TITLES[m], str(k), *(cell(chosen(runs, m, k, what)) for what in ("test", "test_filled"))])
    return table(["method", "K", "exact", "filled"], lines)


def seconds(runs: Sequence[Run], published: Published) -> str:
    def entry(m: str, k: int) -> str:
        found = chosen(runs, m, k, "seconds")
        minutes = published.get(k, {}).get(m)
        return (f"{np.mean(found):.1f}" if found else "") + (f" ({minutes[0]:.0f} min)" if minutes else "")

    return table(
        ["K", *(TITLES[m] for m in EXPERIMENT)], [[str(k), *(entry(m, k) for m in EXPERIMENT)] for k in sizes(runs)]
    )


def floor(runs: Sequence[Run]) -> str:
    """EM and SGD with and without a floor, on two preparations, for each table of rows."""
    parts = []
    asked = [run for run in runs if run["method"] in FLOORS[:2]]
    for data, k in sorted({(run["data"], run["k"]) for run in asked}):
        mine = [run for run in runs if (run["data"], run["k"]) == (data, k)]
        lines = [[AS_SET.get(m, TITLES[m]),
                  *(cell(chosen(mine, m, k, "validation", preset)) for preset in PRESETS)] for m in FLOORS]  # fmt: skip
        parts += [f"{data}, K = {k}, validation log-likelihood:", table(["method", "text", "code"], lines)]
        parts.append(_verdict(mine, k))
    return "\n\n".join(parts) or "Not measured yet: `python -m benchmarks.paper --floor`."


def _verdict(runs: Sequence[Run], k: int) -> str:
    """What the floor costs each method, and what is left between them without one."""
    lines = []
    for preset, name in zip(PRESETS, ("text", "code"), strict=True):
        mean = {m: float(np.mean(v)) for m in FLOORS if (v := chosen(runs, m, k, "validation", preset))}
        costs = [f"{TITLES[m]} {mean[f'{m}-free'] - mean[f'{m}-floor']:.3f} nat" for m in ("minibatch", "sgd")
                 if {f"{m}-free", f"{m}-floor"} <= mean.keys()]  # fmt: skip
        leads = [f"{mean[f'sgd{end}'] - mean[f'minibatch{end}']:+.3f} {what}" for end, what in LEADS
                 if {f"sgd{end}", f"minibatch{end}"} <= mean.keys()]  # fmt: skip
        if costs and leads:
            lines.append(f"On the {name}'s rows the floor costs {' and '.join(costs)}; SGD's lead over minibatch EM is "
                         f"{', '.join(leads)}.")  # fmt: skip
    return " ".join(lines)


def targets(runs: Sequence[Run]) -> str:
    """What was aimed at beside what was measured, at K = 512."""
    lines = []
    for data in sorted({run["data"] for run in runs}):
        mine = [run for run in runs if run["data"] == data and run["k"] == 512]
        simulated = data.startswith("simulated")
        if simulated:
            for method, limit in (("minibatch", 40), ("sgd", 40), ("xdeconv", 60)):
                found = chosen(mine, method, 512, "seconds")
                lines.append(_line(f"{data}: {TITLES[method]}, seconds", f"< {limit}", found, lambda v, t=limit: v < t))
        rivals = [np.mean(v) for m in THREE if (v := chosen(mine, m, 512, "validation"))]
        ours = chosen(mine, "xdeconv", 512, "validation")
        gain, least = [float(np.mean(ours) - max(rivals))] if ours and rivals else [], 0.0 if simulated else 0.1
        what = f"{data}: xdeconv over the best of the three, nat"
        lines.append(_line(what, f">= {least}", gain, lambda v, t=least: v >= t))
    return table(["K = 512", "target", "measured", "holds"], lines)


def _line(what: str, target: str, values: Sequence[float], holds: Callable[[float], bool]) -> list[str]:
    if not values:
        return [what, target, "not measured", ""]
    value = float(np.mean(values))
    return [what, target, f"{value:.3g}", "yes" if holds(value) else "**no**"]


def differences() -> str:
    return table(["what", "the paper", "here", "why"], [list(line) for line in DIFFERENCES])


def fill_in(page: Path, blocks: dict[str, str]) -> None:
    """Replace what lies between <!-- begin NAME --> and <!-- end NAME --> in a page."""
    text = page.read_text()
    for name, body in blocks.items():
        pattern = re.compile(rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
        if not pattern.search(text):
            raise ValueError(f"{page} has no place for {name!r}: <!-- begin {name} --> and <!-- end {name} -->")
        text = pattern.sub(lambda found, body=body: f"{found[1]}\n{body}\n\n{found[2]}", text)
    page.write_text(text)
