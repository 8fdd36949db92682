"""Types and values, and how they are read from text or refused."""
