"""The lake: versions, storage, tables, Delta logs and proofs."""
