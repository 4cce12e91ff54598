"""Campaigns that are too long for the tests: `make soak`, or `python -m soak --help`."""
