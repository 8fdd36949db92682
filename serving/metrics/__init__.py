"""Metrics as text, for all that has some.

The room has one file:

- exposition.py: a metric in Prometheus's text format
"""
