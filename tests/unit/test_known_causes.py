"""Which known causes a cluster is exposed to, by what its brokers answer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from txnscan.waiting.known_causes import (
    KNOWN_CAUSES,
    MAX_TIMEOUT,
    UNCLEAN,
    VERIFICATION,
    Exposure,
    exposed,
    sentence,
)

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

HOUR_MS = 3_600_000
UNVERIFIED = "KAFKA-14402 (KIP-890)"
SAFE_SETTINGS = {VERIFICATION: "true", UNCLEAN: "false", MAX_TIMEOUT: "900000"}
# A release after 4.4 with the defaults of its settings.
SAFE = Exposure({1: 34, 2: 34}, 2, {1: SAFE_SETTINGS, 2: SAFE_SETTINGS})


def with_setting(name: str, value: str) -> Exposure:
    """One of two brokers has it."""
    return replace(SAFE, settings={1: SAFE_SETTINGS, 2: {**SAFE_SETTINGS, name: value}})


CASES: dict[str, tuple[Exposure, list[str]]] = {
    "a new release with safe settings": (SAFE, []),
    "4.4.0": (replace(SAFE, metadata_levels={1: 33}), ["KAFKA-20734"]),
    "4.3.1": (replace(SAFE, metadata_levels={1: 30}), ["KAFKA-20734"]),
    "4.2": (replace(SAFE, metadata_levels={1: 29}), ["KAFKA-19999"]),
    "4.2 with transactions v1": (
        replace(SAFE, metadata_levels={1: 29}, transaction_version=1),
        [UNVERIFIED],
    ),
    "4.1": (replace(SAFE, metadata_levels={1: 27}), []),
    "4.1 and 4.2 in a roll": (replace(SAFE, metadata_levels={1: 27, 2: 29}), ["KAFKA-20322", "KAFKA-19999"]),
    "4.0": (replace(SAFE, metadata_levels={1: 25}), ["KAFKA-19367"]),
    "3.9": (replace(SAFE, metadata_levels={1: 21}, transaction_version=None), [UNVERIFIED]),
    "3.7": (replace(SAFE, metadata_levels={1: 19}, transaction_version=None), ["KAFKA-16352", UNVERIFIED]),
    "brokers without KRaft": (replace(SAFE, metadata_levels={1: None}, transaction_version=None), []),
    "verification is off on one broker": (with_setting(VERIFICATION, "false"), ["verification"]),
    "unclean elections on one broker": (with_setting(UNCLEAN, "true"), ["KAFKA-20716"]),
    "timeouts of an hour": (with_setting(MAX_TIMEOUT, str(HOUR_MS)), []),
    "timeouts above an hour": (with_setting(MAX_TIMEOUT, str(HOUR_MS + 1)), ["long-timeout"]),
    "a timeout that is no number": (with_setting(MAX_TIMEOUT, "long"), []),
    "a timeout of thousands of digits": (with_setting(MAX_TIMEOUT, "9" * 5_000), []),
    "no answer": (Exposure(), []),
}


@pytest.mark.parametrize(("exposure", "expected"), CASES.values(), ids=CASES)
def test_a_cluster_is_exposed_to_the_causes_of_the_specification(exposure: Exposure, expected: list[str]) -> None:
    assert [cause.id for cause in exposed(exposure)] == expected


def test_each_known_cause_has_a_source_and_a_remedy() -> None:
    assert len({cause.id for cause in KNOWN_CAUSES}) == len(KNOWN_CAUSES)
    assert all(cause.source and cause.remedy and cause.affects for cause in KNOWN_CAUSES)


def test_a_cause_is_a_sentence_with_its_remedy(wording: SnapshotAssertion) -> None:
    exposure = with_setting(MAX_TIMEOUT, str(6 * HOUR_MS))
    every = replace(exposure, metadata_levels={1: 30})
    assert [sentence(cause, every) for cause in exposed(every)] == wording
