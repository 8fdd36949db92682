"""Which version is this code: sources, what a function reaches, the fingerprint, the snapshot."""
