"""A message that goes out: `submit` checks and stores it, `seal` makes its bytes, `transmit` sends
what is due and takes in what came of it.

`respond` answers requests; `answer` and `asking` make the signals of this handler. A document
that is too large for one message is cut up by `outgoing_document`; `parts` sends its parts.
"""
