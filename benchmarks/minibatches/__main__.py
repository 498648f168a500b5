"""python -m benchmarks.minibatches [--problems sky small] [--seeds 0 1 2 3 4] [--write]"""

from .measure import main

main()
