"""python -m benchmarks.selecting [--sets 40] [--clusters 5] [--fields gaia_edr3_fields.parquet] [--write]"""

from .measure import main

main()
