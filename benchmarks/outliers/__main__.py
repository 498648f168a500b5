"""python -m benchmarks.outliers [--rows 1000000] [--shown "all five" 2] [--write]"""

from .measure import main

main()
