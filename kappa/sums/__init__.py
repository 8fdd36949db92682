"""The sums of data files: recorded when a file is committed, compared when it is read.

They find what a disk has changed by itself. Read in this order:

- recorded.py: the sums that frontiers carry, and those that are joined
- whole.py: the check of files, once a process
"""
