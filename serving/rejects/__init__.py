"""Records that could not be folded: listed, exported, redriven."""
