"""Requests of an operator: each appends one record, or is refused by name.

This room may not run jobs and may not look at the user's code. Read in this order:

intents.py    undo, promote, verify again, abandon
retiring.py   retire a pipeline: what leaves, who reads it, and the request
pausing.py    pause a pipeline, and resume it
conflicts.py  refusals of requests that came second
"""
