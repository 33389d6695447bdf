"""A process with a share of the brokers. It receives orders as lines of JSON, and answers each with such a line.

    {"shape", "started_at_ms", "broker_ids"}  ->  {port by broker}     it listens
    {port by broker, of all}                  ->  {}                   it serves
    "stats"                                   ->  {counts by broker}
    "reset"                                   ->  {}

It ends when its standard input ends, and so whenever the process that started it ends.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from dataclasses import asdict
from typing import Any

from tests.sim.wire.answers import Answers
from tests.sim.wire.cluster import shape_of
from tests.sim.wire.server import Broker, Kept, listen
from tests.sim.wire.world import World

_LINE_BYTES_MAX = 1 << 24


async def serve() -> None:
    """Serves until standard input ends."""
    orders = asyncio.StreamReader(limit=_LINE_BYTES_MAX)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)

    first = json.loads(await orders.readline())
    ports: dict[int, int] = {}
    answers = Answers(World(shape_of(first["shape"]), first["started_at_ms"], ports))
    kept = Kept()
    brokers = [Broker(broker_id, answers, kept) for broker_id in first["broker_ids"]]
    listening = [await listen(broker) for broker in brokers]
    answers.prepare()
    _tell({broker.broker_id: port for broker, (_, port) in zip(brokers, listening, strict=True)})

    ports.update((int(broker_id), port) for broker_id, port in json.loads(await orders.readline()).items())
    for server, _ in listening:
        await server.start_serving()
    # The present objects stay, so the garbage collector need not check them again.
    gc.freeze()
    _tell({})
    while order := await orders.readline():
        if json.loads(order) == "stats":
            _tell({broker.broker_id: asdict(broker.counts) for broker in brokers})
        else:
            for broker in brokers:
                broker.reset_counts()
            _tell({})


def _tell(answer: Any) -> None:
    sys.stdout.write(f"{json.dumps(answer)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(serve())
