"""A section of kappa.toml: the types that all sections are made of, and the larger ones.

Values; the room imports the errors of its floor alone. Read it in this order:

- section.py: a section, and the types of its settings
- kafka.py: the cluster, and how its clients show who they are
- collect.py: the collector's section
"""
