"""The `__transaction_state` partition of an id: Kafka's hash, and probe ids for each partition."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txnscan.kafka.protocol.coordinator_partition import coordinator_partition, java_hash_code, probe_ids

INT_MIN = -(2**31)


def counting_tokens() -> Callable[[], str]:
    numbers = itertools.count()
    return lambda: f"{next(numbers):x}-probe"


# Computed with String.hashCode() and Utils.abs (kafka-semantics, section (e)).
@pytest.mark.parametrize(
    ("transactional_id", "of_50", "why"),
    [
        ("", 0, "the empty id"),
        ("a", 47, "one letter"),
        ("tx-0", 19, "a plain id"),
        ("my-transactional-id", 46, "a negative hash"),
        ("tx-é", 4, "beyond ASCII"),
        ("tx-😀", 0, "two UTF-16 code units, not one code point and not four bytes"),
        ("polygenelubricants", 0, "Integer.MIN_VALUE, which Utils.abs maps to 0"),
    ],
)
def test_an_id_is_on_the_partition_that_kafka_computes(transactional_id: str, of_50: int, why: str) -> None:
    assert coordinator_partition(transactional_id, 50) == of_50, why


@pytest.mark.parametrize(
    ("text", "hash_code"),
    [
        ("", 0),
        ("a", 97),
        ("tx-0", 3572519),
        ("my-transactional-id", -959806496),
        ("tx-😀", 112519500),
        ("polygenelubricants", INT_MIN),
    ],
)
def test_the_hash_is_javas_string_hash_code_in_32_bits(text: str, hash_code: int) -> None:
    assert java_hash_code(text) == hash_code


@pytest.mark.parametrize("partition_count", [3, 7, 49, 50, 1000])
def test_the_smallest_integer_maps_to_partition_0(
    partition_count: int,
) -> None:
    assert abs(INT_MIN) % partition_count != 0
    assert coordinator_partition("polygenelubricants", partition_count) == 0


@given(st.text(), st.integers(1, 1000))
def test_every_id_maps_to_an_existing_partition(transactional_id: str, partition_count: int) -> None:
    assert INT_MIN <= java_hash_code(transactional_id) < 2**31
    assert 0 <= coordinator_partition(transactional_id, partition_count) < partition_count


@given(st.text(alphabet=st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"])))
def test_the_hash_is_the_polynomial_of_the_java_language_specification(text: str) -> None:
    expected = sum(ord(c) * 31 ** (len(text) - 1 - i) for i, c in enumerate(text)) & 0xFFFFFFFF
    assert java_hash_code(text) & 0xFFFFFFFF == expected


@pytest.mark.parametrize("partition_count", [1, 2, 50, 137])
def test_the_probe_ids_cover_each_partition_once(partition_count: int) -> None:
    probes = probe_ids(partition_count, counting_tokens())
    assert sorted(probes.values()) == list(range(partition_count))
    assert all(coordinator_partition(probe, partition_count) == k for probe, k in probes.items())


def test_zero_partitions_have_no_probe() -> None:
    assert probe_ids(0, counting_tokens()) == {}


def test_a_repeated_token_is_used_once() -> None:
    tokens = iter(["a", "a", "a", "b"])
    assert probe_ids(2, lambda: next(tokens)) == {"a": 1, "b": 0}
