"""A candidate compared with the live build where both are aligned."""
