"""Between values and bytes: `seal` signs, encrypts and packs, `secure` says what a signature or
a certificate proves, `intact` whether bytes are as they were sent.
"""
