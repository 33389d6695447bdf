"""`txnscan watch`: a process that sweeps clusters for ever, serves what it saw as metrics, and notifies of incidents.

`clusters` reads the file that says what to watch, all of it checked before anything starts. `memory` is what a sweep
leaves for the next one: pure. `sweeping` sweeps one cluster again and again, in a thread of its own. `endpoint` serves
/metrics, /healthz and /readyz. `notifier` sends what `report/notifications.py` words. `process` puts them together.

Nothing here can send a marker: `txnscan apply` alone does.
"""
