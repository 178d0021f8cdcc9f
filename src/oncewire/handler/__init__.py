"""The engine over the pure protocol: what is sent, received, delivered and passed on, and the loop
that runs it. The modules beside the folders are what all of them share.
"""
