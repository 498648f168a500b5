"""From files to rows that kernels take: time, by format, over a plain read of the same columns."""
