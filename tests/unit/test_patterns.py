"""Patterns of users: each is matched in whole, and none keeps the process busy."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.builders import stored
from tests.cases import Cases
from txnscan import patterns
from txnscan.config import ConfigError, ScanConfig, topics_matching
from txnscan.kafka.security.providers import resolved
from txnscan.kafka.topology import Broker, ClusterView, Topic
from txnscan.patterns import PatternError, check_pattern, matching
from txnscan.resolve import plan_of_sweep as planning
from txnscan.sweeps.enrichment import owners_by_pattern
from txnscan.sweeps.scope import in_scope
from txnscan.sweeps.warnings import idle_patterns
from txnscan.waiting.owner import NO_OWNERS

LIMIT_S = 1.0
NAME = "a" * 249
VIEW = ClusterView(1, "c", (Broker(1, "h", 9092),), (Topic(NAME, "t0", (0,), (1,), (0,)),))
# Each takes longer than any user waits.
BACKTRACKING = ("(a+)+b", "(a|a)*b", "(a|aa)+b", ".*" * 20 + "b", "(?:a?){200}b", r"(?=(a+)+b)a*", "([a-z]+)*[0-9]")

# Pattern, text, and whether it matches.
MATCHES = (
    ("pay.*", "payments", True),
    ("pay.*", "xpay", False),
    ("pay", "pay\n", False),
    ("a|bb", "abb", False),
    ("(?i)pay", "PAY", True),
    (r"(.)\1", "aa", True),
    ("(?!x).*", "x1", False),
    (".*", "a\nb", False),
    ("(?s).*", "a\nb", True),
    ("π-\\d", "π-1", True),
    (".", "\udc80", True),
    ("\udc80", "\udc80", True),
    ("", "", True),
)
INVALID = ("(", "a{1,99999999999}", "(" * 5_000 + ")" * 5_000, "[", "*", "(?P<n>a)(?P<n>a)", "\x1b(")


def allowed_variable(pattern: str) -> None:
    provider = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"
    settings = {"config.providers": "env", "config.providers.env.class": provider}
    allowed = {"config.providers.env.param.allowlist.pattern": pattern}
    resolved({**settings, **allowed, "sasl.mechanism": f"${{env:{NAME}}}"}, {NAME: "x"})


# Every use of a user's pattern.
USES: dict[str, Callable[[str], object]] = {
    "scope of a sweep": lambda pattern: in_scope(ScanConfig("h:1", topic=(pattern,)), VIEW),
    "warning of a sweep": lambda pattern: idle_patterns(ScanConfig("h:1", topic=(pattern,)), VIEW),
    "topics of a plan": lambda pattern: planning.within_topics([stored(topic=NAME)], (pattern,)),
    "variables of client.properties": allowed_variable,
}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "MATCH_S_MAX", LIMIT_S)


def test_a_pattern_matches_whole_texts() -> None:
    with Cases() as cases:
        for pattern, text, matches in MATCHES:
            with cases.case(ascii(f"{pattern} {text}")):
                assert matching([pattern], [text, "other"])[pattern] - {"other"} == ({text} if matches else set())


def test_each_pattern_gets_its_own_matches() -> None:
    assert matching(["a.*", "b", "x"], ["a1", "b", "a2"]) == {"a.*": {"a1", "a2"}, "b": {"b"}, "x": set()}
    assert matching([], ["a"]) == {} and matching(["a"], []) == {"a": set()}


def test_more_names_than_one_process_gets_are_all_matched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "_TEXTS", 3)
    names = [f"t{number}" for number in range(10)]
    assert topics_matching(["t[0-4]", "t9"], names) == {"t0", "t1", "t2", "t3", "t4", "t9"}


def test_an_invalid_pattern_is_refused_at_once() -> None:
    with Cases() as cases:
        for pattern in INVALID:
            with cases.case(ascii(pattern[:20])):
                with pytest.raises(PatternError) as error:
                    check_pattern(pattern)
                assert str(error.value).isprintable() and len(str(error.value)) < 400
                with pytest.raises(ConfigError, match=r"^--topic: "):
                    ScanConfig("h:1", topic=(pattern,))
                with pytest.raises(ConfigError, match=r"^--owner-pattern: "):
                    ScanConfig("h:1", owner_pattern=(f"n={pattern}",))


def test_a_pattern_that_backtracks_ends_at_the_limit() -> None:
    with Cases() as cases:
        for pattern in BACKTRACKING:
            with cases.case(pattern[:20]):
                began = time.monotonic()
                with pytest.raises(PatternError) as error:
                    matching(["a.*", pattern, "b"], ["ab", NAME])
                assert time.monotonic() - began < LIMIT_S + 2
                assert pattern in str(error.value), "the error names the slow one of the patterns"


def test_every_use_of_a_pattern_has_the_limit() -> None:
    with Cases() as cases:
        for use, used in USES.items():
            with cases.case(use):
                began = time.monotonic()
                with pytest.raises(ValueError, match=r"\(a\+\)\+b"):
                    used("(a+)+b")
                assert time.monotonic() - began < LIMIT_S + 2


def test_an_owner_pattern_that_backtracks_costs_only_the_owner() -> None:
    owners, warnings = owners_by_pattern((("x", "a.*"), ("n", "(a+)+b")), [NAME, "a"])
    assert owners == NO_OWNERS and len(warnings) == 1 and warnings[0].startswith("--owner-pattern: '(a+)+b'")


def test_the_first_matching_owner_pattern_counts() -> None:
    found = owners_by_pattern((("a", "sin"), ("billing team", "sink-.*"), ("b", ".*")), ["sink-3-17", "sin", "x"])
    assert found == ({"sink-3-17": "billing team", "sin": "a", "x": "b"}, ())


def test_the_topics_of_a_large_cluster_are_matched_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "MATCH_S_MAX", 10.0)
    names = [f"tenant-{number:06}.orders.v1" for number in range(100_000)]
    began = time.monotonic()
    assert len(topics_matching(["tenant-0000.*", ".*9[.]orders[.].*", "nosuch"], names)) == 10_090
    assert time.monotonic() - began < 5
