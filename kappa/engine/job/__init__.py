"""The process that folds slices for one build, leg by leg."""
