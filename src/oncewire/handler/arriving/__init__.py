"""A message that comes in. `receive` is the door: read, placed under an agreement (`place`,
`original`), judged and stored (`arrive`); a body that streams in goes through `inbound`.

What follows later is here too: `release` when its turn has come, `reply` when its application has
spoken, `poison` when it cannot be read any more.
"""
