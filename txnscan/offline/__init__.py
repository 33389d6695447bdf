"""Read the files of brokers without running brokers: log segments, producer snapshots, checkpoints,
`__transaction_state`.

Bytes in, rows out. Only `disk.py` lists and maps files, and `running.py` checks them again. A damaged file limits the
statements about its own partition, and never stops the run.
"""
