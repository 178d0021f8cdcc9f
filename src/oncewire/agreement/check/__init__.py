"""What is wrong or dangerous in an agreement: `checks` runs the judges in `dangers` and
`exposure`, and `finding` is what they say.
"""
