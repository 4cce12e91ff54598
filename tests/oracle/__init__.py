"""Stored results of commit cc8a75cd, and how the present package is asked for the same numbers.

`asked`, `computed` and `models` hold functions that produce values, tests/data/oracle/ the values that they had.
"""
