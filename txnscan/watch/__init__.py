"""`txnscan watch`: a process that sweeps clusters continuously, serves metrics, and sends notifications of incidents.

`clusters` reads and checks the whole configuration file before anything starts. `incident_tracker` (pure) keeps what
the next sweep of this process needs. `sweeping` sweeps one cluster repeatedly, in its own thread. `endpoint` serves
/metrics, /healthz and /readyz. `notifier` sends the notifications that `report/notifications.py` words. `process`
combines these parts.

This package never sends a marker; only `txnscan apply` and `txnscan abort` do.
"""
