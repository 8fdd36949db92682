"""Delta tables: the only door to deltalake."""
