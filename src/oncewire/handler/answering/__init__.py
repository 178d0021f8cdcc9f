"""What handlers say to each other about messages: `answer` makes it, `signals` hears it, and
`ignored` keeps a trace of what changed nothing.
"""
