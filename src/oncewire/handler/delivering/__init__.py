"""What the application gets: messages (`deliver`, with the `view` that was accepted) and notices of
failure (`notices`).
"""
