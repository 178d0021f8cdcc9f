"""A message that goes out: `submit` stores it, `admit` lets it into its window, `transmit` sends
what is due and hears what came of it.
"""
