"""Where fits end: the likelihood of held-out rows over seeds."""
