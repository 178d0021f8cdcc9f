"""What happened: the journal's rows, the fold of rows to an outcome, and the predicates."""
