"""XML below every dialect: the hardened parser (`tree`), where elements lie in the received
bytes (`source`), and the text of what is written (`markup`, `moments`).
"""
