"""python -m benchmarks.outliers [--rows 1000000] [--projected 2000] [--write]"""

from .measure import main

main()
