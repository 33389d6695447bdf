"""Harnesses that prove the promises at length. Run by hand, by name; `make test` does not."""
