"""A broker's disk without brokers: log segments, producer snapshots, checkpoints and `__transaction_state`.

Bytes in, rows out; `disk.py` alone lists and maps files, and `running.py` looks at them again. A damaged file ends what
is said of its partition, and never the run.
"""
