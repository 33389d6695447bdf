"""A simulated cluster whose whole history is known, to hold verdicts against the truth.

`records.py` and `world.py` say what there is; the tables of `producer.py`, `coordinator.py`, `partition.py` and
`controller.py` say what can happen, each line with the behaviour of Kafka that it models; `answers.py` is what brokers
answer.
`history.py` runs the real sweep against it, `truth.py` knows what becomes of a transaction, and `check.py` holds the
two together. `exhaustive.py` and `wander.py` look for a history in which they disagree, `shorten.py` makes it short.
`obligations.py` leaves out one obligation at a time, and `stories.py` keeps what then goes wrong.

Time is left out: timeouts, expiry and retries are events that may happen whenever they are possible, so what is found
to be sound does not rest on how long anything takes.
"""
