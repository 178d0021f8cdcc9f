"""A message that is not for us: `accept` takes it, `next_hop` sends it on, `passing` lets through
what the hub does not answer for.
"""
