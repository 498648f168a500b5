"""The command ``python -m benchmarks.paper``."""

from benchmarks.paper.experiment import main

if __name__ == "__main__":
    main()
