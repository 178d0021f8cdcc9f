"""A message that is not for us. `midway` is the door for what arrives, `next_hop` sends it on.

`passing` lets through what the hub does not answer for, `relay` and `previous` speak to where it
came from, `stranded` is what cannot go on.
"""
