"""From contributions to rows by key, by each way a table can be folded."""
