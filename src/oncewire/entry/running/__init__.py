"""A party's handler as a process. `assemble` makes it, `serving` runs it, `reach` finds the one
that runs, `open_party` is the door for programs.
"""
