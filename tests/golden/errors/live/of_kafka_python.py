# mypy: ignore-errors
"""Makes a state of a transactional producer of kafka-python, and prints the exception: BOOTSTRAP STATE ID. The same
states as `Live.java`.
"""

import logging
import os
import sys
import time
import traceback

from kafka import KafkaProducer, TopicPartition
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata

bootstrap, state, name = sys.argv[1:]
logging.basicConfig(stream=sys.stdout, level=logging.INFO)


def producer(timeout_ms=60_000):
    return KafkaProducer(
        bootstrap_servers=bootstrap,
        client_id="python-1",
        transactional_id=name,
        transaction_timeout_ms=timeout_ms,
        max_block_ms=4_000,
        delivery_timeout_ms=4_000,
        request_timeout_ms=2_000,
    )


def make():
    timeout = {"setting": 2_000_000_000, "timed_out": 1_000}.get(state, 60_000)
    one = producer(timeout)
    if state == "misuse":
        one.begin_transaction()
    one.init_transactions()
    one.begin_transaction()
    topics = {"too_large": "small", "denied_topic": "denied"}
    if state in topics:
        one.send(topics[state], b"x" * 5_000, partition=0).get(6)
        one.commit_transaction()
    elif state in ("group", "denied_group"):
        offsets = {TopicPartition("plain", 0): OffsetAndMetadata(1, "", -1)}
        group = ConsumerGroupMetadata("denied-group", -1, "", None)
        if state == "group":
            group = ConsumerGroupMetadata("group-1", 5, "nobody", None)
        one.send_offsets_to_transaction(offsets, group)
        one.commit_transaction()
    else:
        one.send("plain", b"x", partition=0).get(6)
        if state in ("fenced", "fenced_commit"):
            producer().init_transactions()
            if state == "fenced":
                one.send("plain", b"x", partition=0).get(6)
        elif state == "timed_out":
            time.sleep(6)
        elif state == "expired":
            one.commit_transaction()
            time.sleep(9)
            one.begin_transaction()
            one.send("plain", b"x", partition=0).get(6)
        one.commit_transaction()


try:
    make()
except BaseException:
    traceback.print_exc(file=sys.stdout)
sys.stdout.flush()
os._exit(0)
