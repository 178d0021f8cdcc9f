"""The store on SQLite: `store` is the door, `connection` opens the file and migrates it, `session`
writes, `reader` opens views. What they have in common with PostgreSQL is in `store/sql`.
"""
