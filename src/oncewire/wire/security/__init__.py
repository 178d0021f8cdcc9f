"""Signatures and encryption. `signature` makes and verifies XML signatures,
`encryption` and `smime` encrypt and decrypt; `references` says which octets are covered,
`wrapping` what may stand where, `certificates` whose key it is.
"""
