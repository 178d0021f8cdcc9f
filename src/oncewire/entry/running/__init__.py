"""A party's handler as a process: `assemble` makes it, `serving` runs it, `background` starts
and stops it, `open_party` is the door for programs.
"""
