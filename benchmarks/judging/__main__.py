"""python -m benchmarks.judging [--sets 20] [--asked 10] [--write]"""

import argparse
import logging

from benchmarks.common.machine import about
from benchmarks.common.results import describe, write_section

from . import members, verdicts


def main() -> None:
    """Print both tables, and write them where asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.judging", description=f"{verdicts.__doc__}")
    parser.add_argument(
        "--sets", type=int, default=20, help="data sets whose errors and model are judged, of each case"
    )
    parser.add_argument("--asked", type=int, default=10, help="data sets of classes, of each problem")
    parser.add_argument("--write", action="store_true", help="write the tables to RESULTS.md")
    told = parser.parse_args()
    logging.getLogger("xdeconv").setLevel(logging.ERROR)
    text = f"{verdicts.table(told.sets)}\n\n{members.table(told.asked)}"
    print(text)
    if told.write:
        body = (f"`python -m benchmarks.judging`. Verdicts of `xd.check` on {verdicts.ROWS:,} rows, one per "
                f"coordinate; memberships of {members.ROWS:,} rows per data set by mixtures of {members.TRAINED:,} "
                "training rows, over ten bins of the probability, all data sets together (a binomial error of that "
                "bin), and of single ones, whose bins and training rows are few. "
                f"{describe(about())}\n\n{text}")  # fmt: skip
        write_section("Checks and memberships", body)


if __name__ == "__main__":
    main()
