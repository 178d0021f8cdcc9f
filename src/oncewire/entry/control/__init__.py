"""What may be asked of a party, and how: `verbs` is the table, `verb` what a row of it is,
`language` and `values` how it is said on the control socket, `client` the two ends of that.
"""
