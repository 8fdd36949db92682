"""What folds slices by Spark, from offsets to commits. Its rooms are in the order of a slice's way."""
