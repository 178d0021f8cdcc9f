"""A plausible year of business, written as handlers would have journaled it, at any size.

Everything follows from (messages, seed) and nothing from how the work is divided: each stream of
messages is written by itself, from a generator of its own.
"""
