"""Resolve hanging transactions: make a plan that a person can read, then apply exactly that plan.

`guard.py` decides which markers are refused, and why. `plan.py` is the plan file. `apply.py` repeats the proof, sends
one marker at a time and reads the partition again. `journal.py` stores the intent before each marker and the outcome
after it.
"""
