"""What the commands report and may ask, over HTTP."""
