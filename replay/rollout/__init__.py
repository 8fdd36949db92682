"""The way of one build from stage to serving: states, records, what a command may ask."""
