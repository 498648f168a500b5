"""Small data: whether the search helps where rows are few, smooth, rounded or without noise."""
