"""`python -m tests.prove.faults --sweeps 100 --seed 1`: sweeps of real brokers while they break, with the truth known.

Two clusters of three brokers, one after the other: `__transaction_state` is replicated on the first, and on the second
every partition of it is on one broker alone. On each, hanging transactions are planted, transactions that live are held
open, and clients run transactions, some of which they abandon. Then, in an order that the seed decides, something
breaks, and sweeps run while it breaks, while it is broken, while it heals and after.

What must hold (`ledger`):

- **Never accuse the innocent.** Whatever a sweep calls hanging must never end by itself. At the end all is healed, all
  clients stop, and nothing may change any more for longer than any transaction's timeout: what was accused and is not
  open then, on a topic that still exists, was a false accusation. An application that comes back may end what hangs
  (its next transaction on the partition closes it), so most ids are used once; for the others such an end is excused,
  and counted.
- **Nothing planted is missed.** When a sweep is complete, every planted transaction is hanging, with its reason.
  Otherwise it is hanging or indeterminate; it is absent only where the sweep has an error for its partition.
- **In the end everything is found.** The last sweep is complete and calls hanging all that is open for ever, planted or
  made by the faults.

After that one fault is made that chance hardly ever meets (`skipped_marker`).

The same seed brings the same faults in the same order; the machine decides the rest. Exit status 1 on any violation.

`world` is a cluster with what was planted, `traffic` who uses it, `faults` what breaks (with `admin`), `sweeps` who
watches, `ledger` what must hold, `figures` what is told, `__main__` the run.
"""
