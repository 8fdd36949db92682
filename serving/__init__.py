"""Answers: what is served, pinned, queried and shown. Knows nothing of replay or the engine."""
