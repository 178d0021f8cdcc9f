"""The dialect `ebms2`, OASIS ebMS 2.0: `reader` and `writer` are its doors, `header` and
`blocks` read and write single elements.
"""
