"""What every room stands on: errors, settings, processes, the clock. It imports no other room."""
