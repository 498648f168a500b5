"""From what benchmarks.scale measured to RESULTS.md, the plots and the numbers of docs/performance.md.

python -m benchmarks.scale.report scale.json [more.json ...]
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from benchmarks.common.results import describe, table, write_section

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "performance.md"
GAIA_ROWS = 1.8e9
ROW_BYTES = 96
BEGIN, END = "<!-- measured by benchmarks.scale: begin -->", "<!-- measured by benchmarks.scale: end -->"


def billions(rows: float) -> str:
    return f"10^{len(str(int(rows))) - 1}" if str(int(rows)).strip("0") == "1" else f"{rows:,.0f}"


def measured(found: dict[str, Any]) -> list[list[str]]:
    """What was measured, its target, its value, and whether it holds."""
    lines: list[list[str]] = []

    def line(what: str, target: str, value: str, holds: bool) -> None:
        lines.append([what, target, value, "yes" if holds else "**no**"])

    if "pass" in found:
        p = found["pass"]
        what = f"one EM pass, {billions(p['rows'])} rows, k = {p['k']}, resident"
        line(what, "<= 5 s", f"{p['seconds']:.2f} s", p["seconds"] <= 5)
        if "peak_reserved_GiB" in p:
            peak = p["peak_reserved_GiB"]
            line("GPU memory of that run", "<= 100 GiB", f"{peak:.1f} GiB", peak <= 100)
    if "stream" in found:
        s = found["stream"]
        what = f"the same from pinned host memory ({s['rows_held']:,} rows held, {s['rows']:,} copied)"
        line(what, "<= 6 s", f"{s['seconds']:.2f} s", s["seconds"] <= 6)
    if "fit" in found:
        f = found["fit"]
        what = f"a whole fit, {billions(f['rows'])} rows, k = {f['k']}"
        line(what, "<= 300 s", f"{f['seconds']:.0f} s", f["seconds"] <= 300)
        what = f"its held-out score, against the same fit on {billions(f['subset'])} rows"
        value = f"{f['held_out']:.5f} against {f['held_out_subset']:.5f}"
        line(what, "no lower", value, f["held_out"] >= f["held_out_subset"])
    if "ranks" in found:
        r = found["ranks"]
        what = f"two ranks of one thread over one process of two, {r['rows']:,} rows, float64, time of a pass"
        line(what, "<= 1.15", f"{r['ratio']:.3f} ({r['two_s']:.2f} s, {r['one_s']:.2f} s)", r["ratio"] <= 1.15)
        apart = r["largest_difference"]
        line("largest difference of the two mixtures", "<= 1e-9", f"{apart:.1e}", apart <= 1e-9)
    return lines


def targets(found: dict[str, Any]) -> str:
    """Targets beside what was measured."""
    return table(["what", "target", "measured", "holds"], measured(found))


def details(found: dict[str, Any]) -> str:
    """What the table does not say."""
    lines: list[str] = []
    if "pass" in found:
        lines.append("Resident: " + "; ".join(found["pass"]["notes"]) + ".")
    if "stream" in found:
        s = found["stream"]
        lines.append(f"Streamed: {s['GB_per_s']:.1f} GB/s from pinned memory while kernels ran.")
    if "fit" in found:
        f = found["fit"]
        lines.append(
            f"Whole fit: {f['subset_passes']} passes over {f['subset']:,} rows with {f['moves']} moves "
            f"({f['subset_s']:.0f} s), then {f['passes']} passes over {f['rows']:,} rows, {f['pass_s']:.2f} s each; "
            f"held-out score {f['held_out_first']:.5f} before those."
        )
    for name, word in (("n", "rows"), ("k", "components")):
        if name in found:
            lines.append(f"Slope of the logarithm of time against that of {word}: {found[name]['slope']:.3f}.")
    return "\n\n".join(lines)


def machines(found: dict[str, Any]) -> str:
    lines: dict[str, list[str]] = {}
    for part, value in found.items():
        lines.setdefault(describe(value["machine"]), []).append(part)
    return "\n".join(f"- {', '.join(parts)}: {machine}" for machine, parts in lines.items())


def plot(found: dict[str, Any], name: str, label: str) -> None:
    """Seconds of a pass, log-log, with the line of slope one through the last point."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    points = found[name]["points"]
    x, y = [p[name] for p in points], [p["seconds"] for p in points]
    figure, axes = plt.subplots(figsize=(5, 3.6), layout="constrained")
    axes.loglog(x, [y[-1] * v / x[-1] for v in x], color="0.7", label="slope 1")
    axes.loglog(x, y, "o-", label=f"measured, slope {found[name]['slope']:.2f} of the upper half")
    other = f"k = {points[0]['k']}" if name == "n" else f"{points[0]['n']:,} rows"
    axes.set(xlabel=label, ylabel="seconds of one EM pass", title=f"d = 7, full noise, {other}")
    axes.legend(frameon=False)
    figure.savefig(DOCS / f"scaling_{name}.png", dpi=150)
    plt.close(figure)


def arithmetic(found: dict[str, Any]) -> str:
    """What a user may expect, from measured numbers alone."""
    text = [table(["what", "measured"], [[what, value] for what, _, value, _ in measured(found)]), ""]
    if "pass" in found:
        p = found["pass"]
        rate = p["rows"] / p["seconds"]
        rows = []
        for gpus in (1, 2, 8, 64):
            share, seconds = GAIA_ROWS / gpus, GAIA_ROWS / gpus / rate
            rows.append([str(gpus), f"{share:,.0f}", f"{share * ROW_BYTES / 2**30:.1f} GiB", f"{seconds:.2f} s",
                         f"{100 * seconds:.0f} s"])  # fmt: skip
        text += [
            f"One GPU goes through {rate:.3g} rows per second. 1.8 billion rows, d = 7, k = {p['k']}, by division:",
            "",
            table(["GPUs", "rows each", "memory each", "a pass", "100 passes"], rows),
            "",
            "What the division leaves out: the all-reduce of a pass moves the sums, 8 (2 + k (1 + d + d^2)) bytes, "
            f"{8 * (2 + p['k'] * 57) / 1024:.0f} KiB here, and ranks wait for the slowest. Where the rows of a rank "
            "are more than 70 % of its GPU, they are streamed.",
            "",
        ]
    if "ranks" in found:
        r = found["ranks"]
        each = r["one_s"] / r["rows"] * 1e6
        text += [f"On two cores, in float64, a pass over a million rows with k = {r['k']} takes {each:.2f} s.", ""]
    for name, word in (("n", "rows"), ("k", "components")):
        if name in found:
            text += [f"![Seconds of a pass against {word}](scaling_{name}.png)", ""]
    return "\n".join(text)


def main() -> None:
    found: dict[str, Any] = {}
    if not sys.argv[1:]:
        raise SystemExit("say which files hold the measurements, as in: benchmarks/scale/data/*.json")
    for path in sys.argv[1:]:
        found |= json.loads(Path(path).read_text())
    if "pass" not in found and "fit" in found:  # a whole fit has such passes
        found["pass"] = {**found["fit"], "seconds": found["fit"]["pass_s"]}
    for name, label in (("n", "rows"), ("k", "components")):
        if name in found:
            plot(found, name, label)
    body = "`python -m benchmarks.scale`, simulated Gaia rows, d = 7, full noise with missing values."
    write_section("A billion rows", f"{body}\n\n{machines(found)}\n\n{targets(found)}\n\n{details(found)}")
    page = PAGE.read_text()
    inside = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    PAGE.write_text(inside.sub(lambda _: f"{BEGIN}\n\n{arithmetic(found).strip()}\n\n{END}", page))


if __name__ == "__main__":
    main()
