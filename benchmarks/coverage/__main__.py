"""python -m benchmarks.coverage [--ways errors bootstrap] [--kinds "noise 1" ...] [--sets 200] [--write]"""

from .measure import main

main()
