"""python -m benchmarks.small [--problems ring tails ...] [--restarts 50] [--seeds 3] [--write]"""

from .measure import main

main()
