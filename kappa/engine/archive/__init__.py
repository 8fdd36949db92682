"""A typed copy of a topic's log in columns."""
