"""Where plain calls stop, against the best that the same start can reach."""
