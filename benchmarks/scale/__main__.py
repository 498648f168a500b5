"""The command ``python -m benchmarks.scale``."""

from benchmarks.scale.measure import main

if __name__ == "__main__":
    main()
