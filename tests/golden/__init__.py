"""Golden bytes: requests to real brokers and their answers, recorded once and compared in every run of the tests.

- `raw.py` sends requests and keeps the bytes of both directions.
- `store.py` reads and writes recordings; they are in `recorded/`, by Kafka version and part.
- `mask.py` lists the fields that may differ, and the arrays that have no order.
- `shape.py` is the first part: brokers that hold a `ClusterShape`, compared with the wire-level cluster.
- `states.py` is the second part: every state of the conformance scripts, compared with the decoders and the simulator.
- `record.py` is the command that records.
- `errors` records what clients print for each error of Kafka.
- `coordinators.py` records what Kafka's own classes compute of ids beyond ASCII.
"""
