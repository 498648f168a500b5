"""Minibatch EM and SGD at their defaults, beside batch EM."""
