"""What a valid record is: its text, its identity, its lateness, what is redriven for it."""
