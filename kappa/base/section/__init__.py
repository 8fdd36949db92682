"""A section of kappa.toml: the types that all sections are made of, and the larger ones.

Values; the package imports nothing of Kappa. Read it in this order:

- section.py: a section, and the types of its settings
- engine.py: the section of jobs; cluster.py: the rules of those on a cluster
- in_file.py: the secrets that a kappa.toml has, and may not
- collect.py: the collector's section
- access.py: who may do what over the network
- storage.py: where the server of a bucket is
"""

__all__ = ["access", "cluster", "collect", "engine", "storage"]
