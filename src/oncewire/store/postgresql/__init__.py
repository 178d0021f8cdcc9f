"""The store on PostgreSQL: `store` is the door, `connection` connects and migrates, `session` takes
turns and writes, `reader` opens views. What they have in common with SQLite is in `store/sql`.
"""
