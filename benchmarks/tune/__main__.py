"""The command ``python -m benchmarks.tune``."""

from benchmarks.tune.search import main

if __name__ == "__main__":
    main()
