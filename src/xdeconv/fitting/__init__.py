"""fit(): from what a user says to a mixture, by one loop.

It imports from search and everything below."""
