"""Resolving hanging transactions: a plan that a person can read, and an apply that does that plan and nothing else.

`guard.py` says what is refused, and why; `plan.py` is the file; `apply.py` proves again, sends one marker at a time and
looks at what came of it; `journal.py` stores the intent before and the outcome after.
"""
