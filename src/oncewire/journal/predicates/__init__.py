"""Whether the promises were kept: S1-S15, L1 and L3 as folds over journal rows.

A fold sees the rows of one key (a message, a channel, a document) in order of (node, seq) and
knows nothing of other keys, so keys can be judged on any number of machines. Positions compare
only within one node; between nodes a fold follows the message itself, never the clocks.
"""
