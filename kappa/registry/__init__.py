"""The schema registry: the only door to it. It is asked over HTTP, in Confluent's dialect.

Declarations do not ask it (kappa/formats/pinned.py). Read in this order:

- `client.py`: what a registry is asked, and what its answers mean.
- `stored_schemas.py`: the schemas of ids, asked once and kept in the root.
"""
