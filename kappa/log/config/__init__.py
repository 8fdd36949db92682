"""The settings of topics at the broker.

- topic_config.py: those of a topic itself, and their change.
"""
