"""Bodies: multipart MIME and what is done to the bytes of single parts.

`multipart` reads piece by piece, `whole` what is all at hand, `writer` writes. `bundle` holds
several messages in one body, `splice_body` changes the header of a body and nothing else.
"""
