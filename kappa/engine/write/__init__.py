"""One commit a table, then one frontier a slice; what readers need is kept, the rest is removed."""
