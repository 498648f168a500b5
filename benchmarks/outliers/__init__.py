"""p-values of outliers: how long they take, and how right they are."""
