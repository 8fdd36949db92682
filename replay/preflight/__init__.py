"""What a plan looks at before anything runs: cost, samples, readers, determinism."""
