"""What a user writes: topics, tables, folds, pipelines, ordered steps. A declaration runs nothing."""
