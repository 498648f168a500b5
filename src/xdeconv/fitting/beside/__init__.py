"""What a fit carries beside Gaussian components: backgrounds, selections, factors on errors, and their numbers.

It imports from mixture, methods and the workspace of fitting."""
