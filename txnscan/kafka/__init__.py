"""The only door to brokers: connections (`client`), Kafka's own settings file (`properties`), and one module per API.

The API modules are pure: they build a request, hand it to `send(broker_id, request)`, and turn the answer into the
nouns of `model.py`. Anything that is missing, doubled or unexpected in an answer is an error, never a success.
"""
