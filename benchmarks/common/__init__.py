"""What several benchmarks share: the problems, the machine's description, and the writer of RESULTS.md."""
