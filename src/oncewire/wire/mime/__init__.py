"""Bodies: multipart MIME and what is done to the bytes of single parts.

`multipart` reads and writes parts, `compression` undoes what senders compressed.
"""
