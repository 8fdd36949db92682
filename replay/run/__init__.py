"""The supervisor, its children, and the controller's loop."""
