"""What happens to messages besides their travel: an administrator acts (`operate`), the clock is
set (`clock`), time is up (`retain`). `wake` says when any of it, or a timer, is due.
"""
