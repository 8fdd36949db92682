"""Compiled code: `loops` has loops over all records, compiled by Numba."""
