"""What was seen of the cluster, and what of it could not be: the reads and what each of them proves.

In the order of a sweep: `batches` plans bounded reads for each leader; `probe` reads partitions, wide or with proof,
and `log_scan` a partition of `__transaction_state`; `tasks` runs these in the driver's threads or on executors; `reads`
carries them through an engine. `sieve` takes out the transactions that a coordinator reports as its own; `snapshot`
asks all coordinators, with `visibility` and `agreement` as proof that none was missed; `observe` puts the reads
together, and `log_reads` reads what the log holds about what hangs.
"""
