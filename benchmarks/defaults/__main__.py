"""The command ``python -m benchmarks.defaults``."""

from benchmarks.defaults.measure import main

if __name__ == "__main__":
    main()
