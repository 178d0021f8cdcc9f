"""XML below every dialect: the hardened parser, where elements lie in the received bytes, text."""
