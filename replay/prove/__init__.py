"""A served table compared with a fold of the log from its origin."""
