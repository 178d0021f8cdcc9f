"""What people read of the lake: the report, reconciliation, SQL."""
