"""What is wrong or dangerous in an agreement. The door is `checks`, and `finding` is what it
says; `dangers`, `exposure` and `hops` are the judges.
"""
