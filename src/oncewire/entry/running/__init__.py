"""A party's handler as a process: `serving` makes and runs it, `background` starts and stops it,
`open_party` is the door for programs.
"""
