"""The demo: `play` runs two parties over a bad network, `ways` are the transports that it can take,
`stores` the places where it can keep their messages.
"""
