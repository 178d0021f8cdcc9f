"""Differential reading: what was learned of one envelope reads the next ones like it.

Envelopes of one partner under one agreement differ in a few fields: ids, moments, numbers. A
`mould` is an accepted envelope with gaps in those places (`gaps` says which); whatever has the same
bytes around the gaps, and plain values in them (`forms`), is read without a parser. Anything else
is left to the full reader, whose result is always the same; `mould` says why.
"""
