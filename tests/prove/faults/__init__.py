"""`python -m tests.prove.faults --sweeps 100 --seed 1`: sweep real brokers during faults, and compare with the truth.

There are two clusters of three brokers, one after the other. `__transaction_state` is replicated on the first; on the
second each of its partitions is on a single broker. On each cluster, hanging transactions are planted, live
transactions are kept open, and clients run transactions, some of which they abandon. Then faults happen in an order
that the seed decides, and sweeps run while a fault begins, while it lasts, while it heals, and afterwards.

Conditions (`ledger`):

- **Never accuse the innocent.** A transaction that a sweep reports as hanging must never end by itself. At the end all
  faults are healed, all clients stop, and no state may change for longer than any transaction's timeout. If a reported
  transaction is not open then, on a topic that still exists, the report was a false accusation. An application that
  returns may end a hanging transaction (its next transaction on the partition closes it), so most ids are used once;
  for the others such an end is excused, and counted.
- **No planted transaction is missed.** In a complete sweep, every planted transaction is hanging, with its reason.
  Otherwise it is hanging or indeterminate; it is absent only if the sweep has an error for its partition.
- **In the end every hanging transaction is found.** The last sweep is complete, and reports every transaction that is
  open forever, whether planted or caused by the faults.

Afterwards one fault is caused that chance hardly ever causes (`skipped_marker`).

The same seed causes the same faults in the same order; the machine decides the rest. Exit status 1 on any violation.

`world` is a cluster with its planted transactions, `traffic` its clients, `faults` the faults (with `admin`), `sweeps`
the sweeps, `ledger` the conditions, `figures` the report, `__main__` the run.
"""
