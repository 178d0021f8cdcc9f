"""What the stores on SQLite and on PostgreSQL share: records as columns, statements, and the
backend and the reader that run them in a session of either.
"""
