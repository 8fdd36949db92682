"""The HTTP server: its gate, its problems, queries, snapshots, events."""
