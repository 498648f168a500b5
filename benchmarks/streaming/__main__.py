"""The command ``python -m benchmarks.streaming``."""

from benchmarks.streaming.measure import main

if __name__ == "__main__":
    main()
