"""Whether all is well: `checkup` looks at a party, `ping` asks a partner, `judging` holds the
journals against the promises.
"""
