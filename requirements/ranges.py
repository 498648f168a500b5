"""The ranges of pyproject.toml, tried at their ends: python requirements/ranges.py [lowest] [newest] [-- TESTS]

Makes a virtual environment for each end under --folder, installs the library with every dependency at its lowest
version or at the newest there is, and runs the tests named (by default those that touch every dependency). torch is
the pinned one in both: its other builds are gigabytes, so that its lower bound is not tried here.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
TESTS = [
    "tests/mixture/test_mixture.py",
    "tests/compat/test_estimator.py",
    "tests/catalog/test_readers.py",
    "tests/rows/test_tabular.py",
    "tests/system/test_faults.py",
    "tests/kernels/test_cpu.py",
    "tests/cli/test_cli.py",
]
EXTRAS = ("tables", "plot")
TOOLS = ("pytest", "hypothesis", "mpmath")


def pinned(package: str) -> str:
    """The version that requirements/dev.txt pins."""
    for line in (ROOT / "requirements" / "dev.txt").read_text().splitlines():
        if re.match(rf"{package}==", line):
            return line.split("#")[0].strip()
    raise SystemExit(f"requirements/dev.txt pins no {package}")


def wanted(end: str) -> list[str]:
    """What pip is to install for one end of all ranges."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ranges = list(project["dependencies"])
    for extra in EXTRAS:
        ranges += [item for item in project["optional-dependencies"][extra] if not item.startswith("xdeconv")]
    ranges += [item for item in project["optional-dependencies"]["dev"] if item.split(">=")[0] in TOOLS]
    found = [item.replace(">=", "==") if end == "lowest" else item.split(">=")[0] for item in ranges]
    return [pinned("torch") if re.match(r"torch\b", item) else item for item in found]


def run(*command: str) -> int:
    print("+", " ".join(command), flush=True)
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def try_end(end: str, folder: Path, tests: list[str]) -> str:
    """Install one end and run the tests; what came of it."""
    place = folder / end
    python = str(place / "bin" / "python")
    if run(sys.executable, "-m", "venv", str(place)):
        return "no virtual environment"
    if run(python, "-m", "pip", "install", "--quiet", *wanted(end)):
        return "these versions cannot be installed together"
    if run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--editable", str(ROOT)):
        return "the library cannot be installed"
    quiet = ["-q", "-p", "no:cacheprovider", "-o", "filterwarnings=default"]  # warnings of other projects are theirs
    return "passed" if run(python, "-m", "pytest", *quiet, *tests) == 0 else "tests failed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ends", nargs="*", default=[], help="lowest, newest; both by default")
    parser.add_argument("--folder", type=Path, default=ROOT / ".ranges")
    parser.add_argument("--tests", nargs="*", default=TESTS)
    arguments = parser.parse_args()
    ends = arguments.ends or ["lowest", "newest"]
    found = {end: try_end(end, arguments.folder, arguments.tests) for end in ends}
    print(found)
    raise SystemExit(any(result != "passed" for result in found.values()))


if __name__ == "__main__":
    main()
