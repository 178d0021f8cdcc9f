"""Where it is kept: one contract, on SQLite and in memory."""
