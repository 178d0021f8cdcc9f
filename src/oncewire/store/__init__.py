"""Where messages are kept: one contract, implemented on SQLite, on PostgreSQL and in memory."""
