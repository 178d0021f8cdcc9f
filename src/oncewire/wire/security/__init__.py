"""Signatures and encryption. The doors: `signing`, `signature`, `verified`, `encryption`,
`decryption`.

`nodeset` and `references` say which octets are covered, `wrapping` what may stand where,
`certificates` whose key it is.
"""
