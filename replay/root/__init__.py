"""The root as a whole: it is copied to another one, while nothing runs.

- copy.py: what is copied, in which order, and how a copy that was cut short is gone on with.
"""
