"""A message that comes in: `inbound` takes the body, `receive` reads it, `agreement_match` finds
its agreement, `arrive` judges and stores it with its answer. `signals` and `reports` take what
partners say about messages of ours.

`release` lets go what waited for its turn. Parts of a document wait in `gathering`; `joining` puts
the document together.
"""
