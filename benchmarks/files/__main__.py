"""The command ``python -m benchmarks.files``."""

from benchmarks.files.measure import main

if __name__ == "__main__":
    main()
