"""python -m benchmarks.fits --fields gaia_edr3_fields.parquet [--cases ...] [--seeds 3] [--write]"""

from .measure import main

main()
