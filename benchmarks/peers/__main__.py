"""The command ``python -m benchmarks.peers``."""

from benchmarks.peers.compare import main

if __name__ == "__main__":
    main()
