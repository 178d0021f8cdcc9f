"""Where messages are kept: one contract, implemented on SQLite and in memory."""
