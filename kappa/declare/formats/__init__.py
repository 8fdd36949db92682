"""The formats that a topic may declare.

- `named.py`: those of its values: all of kappa/formats.
- `key_formats.py`: those of its keys.
- `changes.py`: what a topic of changes at a source may declare besides.
"""
