"""How the lake is judged: the folds of the journal run as Spark tasks."""
