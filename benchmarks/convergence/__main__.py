"""python -m benchmarks.convergence [--rows 1000 10000 100000] [--seeds 1] [--write]"""

from .measure import main

main()
