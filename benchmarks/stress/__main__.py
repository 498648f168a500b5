"""The command ``python -m benchmarks.stress``."""

from benchmarks.stress.run import main

if __name__ == "__main__":
    main()
