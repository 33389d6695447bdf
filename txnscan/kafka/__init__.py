"""The only access to brokers: connections and Kafka's own settings file (`client`), and one module per API
(`protocol`).

The API modules are pure: they build a request, pass it to `send(broker_id, request)`, and turn the answer into values
(`answers.py`, `topology.py`). If a part of an answer is missing, doubled or unexpected, this is an error, never a
success.
"""
