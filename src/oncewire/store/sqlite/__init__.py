"""The store on SQLite: `store` is the door, `connection` opens the file and migrates it,
`reader` answers questions, `backend` and `writing` load and apply rows.
"""
