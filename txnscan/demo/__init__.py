"""Real brokers on this machine, with real hanging transactions.

`jars` fetches Kafka, `brokers` runs it as child processes, `producer` implements the transaction protocol without the
checks of a real client, `plant` creates the scenarios, `traffic` runs healthy transactions at the same time, and
`kafka_tool` runs Kafka's own tool. All servers listen on 127.0.0.1 only.
"""
