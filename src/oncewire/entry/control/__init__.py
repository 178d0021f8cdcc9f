"""How a command asks the handler that runs: `verbs` are what may be asked, `language` how it is
said on the control socket, `client` and `server` its two ends.
"""
