"""Builds that nothing needs any more, and the files that are deleted with them.

It deletes by file list, never by age, and nothing that a reader has pinned (law 11). Read in this
order:

retire.py   data of retired builds, and builds that were never staged
garbage.py  what nothing needs, by build and kind
hands.py    a dry run looks, a collection deletes
gc.py       `kappa gc`: finds garbage below the root, and deletes it
"""
