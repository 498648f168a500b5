"""The machine, and nothing of mixtures: files, memory, threads, ranks.

It imports nothing else of the package."""
