"""Files and tables as sources of rows: readers, columns found by name, expressions, the sky, stores and writers.

It imports from rows and system."""
