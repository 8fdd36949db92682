"""Small tables of a bucket that their job commits to on its own disk first.

- `mirrored_table.py`: such a table, and how its mirror is made
"""
