"""The changes of a new version: in its code, for readers, in its topics' events. Pure.

Read in this order:

code_diff.py      what changed in the code, as a diff
readers.py        what changes for readers
event_changes.py  what becomes of the fields of events
"""
