"""The command ``python -m benchmarks.optima``."""

from benchmarks.optima.measure import main

if __name__ == "__main__":
    main()
