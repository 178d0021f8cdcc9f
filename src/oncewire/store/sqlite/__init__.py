"""The store on SQLite. `store` is the door, `connection` how the file is opened, `reader` what
people ask, `migrate` how its tables came to be.
"""
