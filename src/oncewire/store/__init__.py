"""Where it is kept: one contract, on SQLite, on PostgreSQL and in memory."""
