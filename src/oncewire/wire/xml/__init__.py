"""XML below every dialect: `tree` is the hardened parser, `source` says where elements lie in
the received bytes and writes text.
"""
