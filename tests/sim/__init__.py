"""A simulated cluster with a known history. Verdicts are compared with the truth.

`records.py` and `world.py` define the state. The tables of `producer.py`, `coordinator.py`, `partition.py` and
`controller.py` define the possible events; each line cites the behaviour of Kafka that it models. `answers.py` produces
the answers of brokers.
`history.py` runs the real sweep on the simulation, `truth.py` computes what becomes of a transaction, and `check.py`
compares the two. `exhaustive.py` and `wander.py` search for a history in which they disagree, and `shorten.py` shortens
it. `obligations.py` omits one obligation at a time, and `stories.py` stores the histories in which the sweep is then
wrong.

The simulation has no time: timeouts, expiry and retries are events that may happen whenever they are possible. So a
verdict that is sound here does not depend on durations.
"""
