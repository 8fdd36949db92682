"""The root as a whole: it is copied to another one, or adopted, while nothing runs.

- copy.py: what is copied, in which order, and how a copy that was cut short is gone on with.
- adopt.py: a copy that was made by other means becomes a root of its own.
"""
