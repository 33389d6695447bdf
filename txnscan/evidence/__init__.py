"""What was seen of the cluster, and what of it could not be: the reads and what each of them proves.

In the order of a sweep: `batches` plans bounded reads for each leader; `probe` reads partitions, wide or with proof,
and `log_scan` a partition of `__transaction_state`; `tasks` runs these in the driver's threads or on executors; `reads`
carries them through an engine. `sieve` takes out what a coordinator itself says that it holds; `snapshot` asks all
coordinators, with `visibility` and `agreement` as proof that none was missed; `observe` puts the reads together, and
`log_reads` says what the log holds of what hangs.
"""
