"""Messages of Kafka's protocol that kafka-python does not have, in the format of Kafka's message definitions."""
