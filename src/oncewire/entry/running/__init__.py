"""A party's handler as a process. `assemble` makes it, `serving` runs it, `reach` finds the one
that runs, `party_handler` is the door for programs.
"""
