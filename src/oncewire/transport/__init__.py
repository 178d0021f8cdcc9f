"""How it travels: one contract, and HTTP(S) behind it; a transport says whether it can answer on
the same connection.
"""
