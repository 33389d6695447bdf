"""Real brokers on this machine, and real hanging transactions on them.

`jars` fetches Kafka, `brokers` runs it as child processes, `producer` speaks the transaction protocol without the
checks of a real client, `plant` makes the scenarios, `traffic` keeps healthy transactions going beside them, and
`kafka_tool` asks Kafka's own tool. Everything listens on 127.0.0.1 only.
"""
