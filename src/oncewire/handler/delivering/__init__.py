"""What the application gets: messages (`deliver`, as they were `accepted`) and notices of
failure (`notices`). `application` is what it must be able to do.
"""
