"""What happens to messages besides their travel: an administrator acts (`operate`), the clock is
set (`clock`), time is up (`retain`).
"""
