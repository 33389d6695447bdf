"""The `__transaction_state` partition of a transactional id, and random ids to probe each partition.

Source: `TransactionStateManager.partitionFor`: `Utils.abs(id.hashCode()) % n`, where n is the actual partition count of
`__transaction_state`, never an assumed 50. FindCoordinator is not used, because it creates a missing topic.
"""

from __future__ import annotations

from collections.abc import Callable

_JAVA_INT_MIN = -(2**31)


def java_hash_code(text: str) -> int:
    """`String.hashCode()`: over UTF-16 code units, in 32-bit arithmetic."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(data), 2):
        value = (31 * value + int.from_bytes(data[position : position + 2], "big")) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


def coordinator_partition(transactional_id: str, partition_count: int) -> int:
    """The `__transaction_state` partition of an id. `Utils.abs` maps Integer.MIN_VALUE to 0."""
    value = java_hash_code(transactional_id)
    return (0 if value == _JAVA_INT_MIN else abs(value)) % partition_count


def probe_ids(partition_count: int, random_token: Callable[[], str]) -> dict[str, int]:
    """One random id for each `__transaction_state` partition, with the partition to which it hashes.

    The ids share no prefix, so that no prefixed ACL can make all of them visible. With a good `random_token` no
    application has such an id.
    """
    found: dict[int, str] = {}
    while len(found) < partition_count:
        token = random_token()
        found.setdefault(coordinator_partition(token, partition_count), token)
    return {token: partition for partition, token in found.items()}
