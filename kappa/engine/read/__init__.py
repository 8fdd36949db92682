"""From offsets to decoded records."""
