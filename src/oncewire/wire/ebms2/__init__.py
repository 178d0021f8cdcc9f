"""The dialect `ebms2`: OASIS ebMS 2.0, read and written. Its door is `dialect`.

`names` has the words on the wire, `blocks`, `header` and `signals` read single elements,
`rules` says what may not stand together.
"""
