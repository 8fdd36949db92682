"""What would change, and the step from a yes to a staged build."""
