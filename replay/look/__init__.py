"""What runs, serves and waits, for commands, HTTP and the page alike."""
