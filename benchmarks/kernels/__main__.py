"""How fast the kernels are, and whether that meets the targets: python -m benchmarks.kernels [--gpu kernels_gpu.json].

The kernels' own tests run first; when they fail, no speed is printed. On a machine with a GPU its table is
measured too; elsewhere --gpu takes the JSON that python -m benchmarks.kernels.gpu wrote there. Both go to RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import torch

from benchmarks.common import results

GPU_TARGETS = {
    "gaia k=256 dense": ("k = 256, dense", 8.0, "ms"),
    "gaia k=256 skip": ("k = 256, Gaia-like fitted mixture, with skipping", 4.0, "ms"),
    "gaia k=512 skip": ("k = 512, Gaia-like fitted mixture, with skipping", 7.0, "ms"),
    "gaia k=256 float64 dense": ("k = 256, float64, dense", 25.0, "ms"),
    "500 rows k=256 EM step, whole (us)": (
        "one minibatch EM step, 500 rows, k = 256, everything included",
        150.0,
        "us",
    ),
    "500 rows k=256 SGD step, whole (us)": ("one SGD step, 500 rows, k = 256, everything included", 250.0, "us"),
}


def refuse_wrong_kernels() -> None:
    """Run the tests of the kernels; stop when one fails."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/kernels"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], check=False)
    if done.returncode:
        raise SystemExit("the kernels' tests fail: no speeds from kernels that are wrong")


def cpu_rows(found: dict) -> list[list[str]]:
    """The table of CPU targets: what, target, measured, whether it holds."""
    astroml, noise = found["astroML"] or {}, found["noise"]
    share = 100 * found["matmul"]["share of matmul"]
    lines = [
        (
            "float32, d = 7, k = 64, all sums, against the float32 reference",
            50,
            found["reference"]["times faster"],
            "x",
        ),
        ("the same against astroML's XDGMM on the same rows", 1000, astroml.get("times, float32"), "x"),
        ("arithmetic rate without skipping, share of a float32 matrix product", 30, share, "%"),
        ("skipping on against off, k = 256", 2, found["skipping"].get("256", {}).get("speed-up"), "x"),
        ("one shared noise against scikit-learn (float32)", 1, noise["shared against scikit-learn float32"], "x"),
        ("one shared noise against our full noise", 2.5, noise["shared against full"], "x"),
    ]
    rows = [[what, f">= {target} {unit}", *_verdict(value, unit, value is not None and value >= target)]
            for what, target, value, unit in lines]  # fmt: skip
    slower = noise["float64 over float32"]
    return [*rows, ["float64 over float32", "<= 2.5 x", *_verdict(slower, "x", slower <= 2.5)]]


def _verdict(value: float | None, unit: str, holds: bool) -> list[str]:
    return ["not measured", "-"] if value is None else [f"{value:.3g} {unit}", "yes" if holds else "**no**"]


def write_cpu(found: dict) -> None:
    """The CPU section of RESULTS.md."""
    per_pair = found["nanoseconds per pair"]
    sizes = [[name, f"{ns['on']:.1f}", f"{ns['off']:.1f}"] for name, ns in per_pair.items()]
    compile_times = "; ".join(f"{name}: {seconds:.1f} s" for name, seconds in found["seconds to compile"].items())
    body = [
        f"`python -m benchmarks.kernels` on {results.describe(found['machine'])}",
        f"{found['rows']} rows of the simulated sky, d = 7, mixtures fitted by 60 EM passes; calls take turns, and "
        "ratios are medians.",
        results.table(["what", "target", "measured", "holds"], cpu_rows(found)),
        "Time per pair in ns (two threads), random mixtures:",
        results.table(["size", "skipping", "no skipping"], sizes),
        f"Compilation, once per machine: {compile_times}.",
    ]
    results.write_section("Kernels on a CPU", "\n\n".join(body))


def write_gpu(found: dict) -> None:
    """The GPU section of RESULTS.md."""
    rows = [[name, f"<= {target:g} {unit}", *_verdict(found.get(key), unit, found.get(key, 1e9) <= target)]
            for key, (name, target, unit) in GPU_TARGETS.items()]  # fmt: skip
    shown = set(GPU_TARGETS) | {"device", "torch", "machine"}
    others = [[name, f"{value:.4g}"] for name, value in found.items() if name not in shown]
    body = [
        f"`python -m benchmarks.kernels.gpu` on {results.describe(found['machine'])}",
        "2^20 simulated rows, d = 7, full noise, float32 unless said, all sums; mixtures fitted by 100 EM passes.",
        results.table(["what", "target", "measured", "holds"], rows),
        "Everything that was measured (ms unless said):",
        results.table(["what", "measured"], others),
    ]
    results.write_section("Kernels on a GPU", "\n\n".join(body))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--gpu", type=Path, help="what python -m benchmarks.kernels.gpu wrote on a machine with a GPU")
    parser.add_argument(
        "--gpu-dimensions", type=Path, help="what python -m benchmarks.kernels.gpu_dimensions wrote there"
    )
    parser.add_argument("--cpu", type=Path, help="what an earlier run saved as kernels_cpu.json")
    parser.add_argument("--no-cpu", action="store_true")
    options = parser.parse_args()
    refuse_wrong_kernels()
    if options.cpu is not None:
        write_cpu(json.loads(options.cpu.read_text()))
    elif not options.no_cpu:
        from benchmarks.kernels import cpu, dimensions

        found = cpu.measure(options.quick)
        Path("kernels_cpu.json").write_text(json.dumps(found, indent=1))
        write_cpu(found)
        few = [2, 7, 10, 12, 16, 17, 20, 32, 64]
        dimensions.write(
            dimensions.measured(few if options.quick else dimensions.EVERY, options.quick), "benchmarks.kernels"
        )
    if options.gpu is None and torch.cuda.is_available():
        options.gpu = Path("kernels_gpu.json")
        command = [sys.executable, "-m", "benchmarks.kernels.gpu", "--out", str(options.gpu)]
        subprocess.run(command, check=True)
    if options.gpu is not None:
        write_gpu(json.loads(options.gpu.read_text()))
    if options.gpu_dimensions is not None:
        from benchmarks.kernels.gpu_dimensions import section

        text = section(json.loads(options.gpu_dimensions.read_text()))
        results.write_section("Kernels over dimensions on a GPU", text)
    print(results.RESULTS.read_text())


if __name__ == "__main__":
    main()
