# mypy: ignore-errors
"""Makes a state of a transactional producer of librdkafka, and prints the exception: BOOTSTRAP STATE ID. The same
states as `Live.java`.
"""

import sys
import time
import traceback

from confluent_kafka import Producer, TopicPartition

bootstrap, state, name = sys.argv[1:]


def producer(timeout_ms=60_000):
    settings = {
        "bootstrap.servers": bootstrap,
        "client.id": "rdkafka-1",
        "transactional.id": name,
        "transaction.timeout.ms": timeout_ms,
        "message.timeout.ms": min(timeout_ms, 4_000),
    }
    return Producer(settings)


def send(one, topic, size=5):
    one.produce(topic, b"x" * size, partition=0, on_delivery=delivered)
    one.flush(6)


def delivered(error, message):
    if error is not None:
        sys.stdout.write(f"Delivery failed: {error}\n")


def make():
    timeout = {"setting": 2_000_000_000, "timed_out": 1_000}.get(state, 60_000)
    one = producer(timeout)
    if state == "misuse":
        one.begin_transaction()
    one.init_transactions(4)
    one.begin_transaction()
    topics = {"too_large": "small", "denied_topic": "denied"}
    if state in topics:
        send(one, topics[state], 5_000)
        one.commit_transaction(5)
    elif state in ("group", "denied_group"):
        from confluent_kafka import Consumer

        group = "denied-group" if state == "denied_group" else "group-1"
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        one.send_offsets_to_transaction([TopicPartition("plain", 0, 1)], consumer.consumer_group_metadata(), 5)
        one.commit_transaction(5)
    else:
        send(one, "plain")
        if state in ("fenced", "fenced_commit"):
            producer().init_transactions(5)
            if state == "fenced":
                send(one, "plain")
        elif state == "timed_out":
            time.sleep(6)
        elif state == "expired":
            one.commit_transaction(5)
            time.sleep(9)
            one.begin_transaction()
            send(one, "plain")
        one.commit_transaction(5)


try:
    make()
except BaseException:
    traceback.print_exc(file=sys.stdout)
