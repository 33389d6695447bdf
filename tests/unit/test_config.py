"""Options: accepted values, and errors that name the option and the remedy."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import Cases
from txnscan.config import (
    ConfigError,
    Location,
    ScanConfig,
    parse_bootstrap_servers,
    parse_duration_ms,
    parse_optional_duration_ms,
    parse_time_ms,
    printable,
)

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

LONGEST = "x" * 249


def config(**options: Any) -> ScanConfig:
    return ScanConfig(**({"bootstrap_servers": "localhost:9092"} | options))


def complaint(**options: Any) -> str:
    with pytest.raises(ConfigError) as error:
        config(**options)
    return str(error.value)


@pytest.mark.parametrize(
    ("text", "expected", "why"),
    [
        ("localhost:9092", [("localhost", 9092)], "a name"),
        ("10.0.0.1:1", [("10.0.0.1", 1)], "an address and the lowest port"),
        ("a.b-c:65535", [("a.b-c", 65535)], "the highest port"),
        ("a:1,b:2,a:1", [("a", 1), ("b", 2), ("a", 1)], "several"),
        ("[::1]:9092", [("::1", 9092)], "IPv6 stands in brackets"),
        ("[fe80::a:1]:9092,b:1", [("fe80::a:1", 9092), ("b", 1)], "IPv6 beside a name"),
        ("[::ffff:10.0.0.1]:9092", [("::ffff:10.0.0.1", 9092)], "IPv4 in IPv6"),
    ],
)
def test_bootstrap_servers_are_hosts_and_ports(text: str, expected: list[tuple[str, int]], why: str) -> None:
    brokers = parse_bootstrap_servers(text)
    assert [(b.host, b.port) for b in brokers] == expected, why
    assert [b.broker_id for b in brokers] == [-n for n in range(1, len(brokers) + 1)]
    assert ",".join(b.address for b in brokers) == text


@pytest.mark.parametrize("text", ["a:1, b:2", " a:1,b:2", "a:1,b:2 ", "a:1 ,b:2\n"])
def test_blanks_around_bootstrap_servers_are_stripped(text: str) -> None:
    """As in Kafka: `ConfigDef.parseType` trims each element of a list."""
    assert [b.address for b in parse_bootstrap_servers(text)] == ["a:1", "b:2"]


NO_SERVERS = (
    "a:655360",
    "",
    "  ",
    "localhost",
    "localhost:",
    ":9092",
    "localhost:0",
    "localhost:65536",
    "localhost:99999",
    "localhost:x",
    "localhost:-1",
    "a:1,",
    ",a:1",
    "a:1,,b:2",
    "a b:1",
    "a:1;b:2",
    "a:1:2",
    "::1:9092",
    "[::1]",
    "[::1]9092",
    "[]:9092",
    "[::1:9092",
    "PLAINTEXT://a:1",
    "http://a:1/",
    "a/b:1",
    "[x]:1",
    "[:::]:9092",
    "[1:2]:9092",
    "[12345::]:9092",
    "[.]:9092",
    "[10.0.0.1]:9092",
)


def test_an_invalid_bootstrap_server_is_an_error_of_its_option(wording: SnapshotAssertion) -> None:
    complaints = {}
    with Cases() as cases:
        for text in NO_SERVERS:
            with cases.case(repr(text)) as name:
                said = complaint(bootstrap_servers=text)
                assert said.startswith("--bootstrap-server: ") and "\n" not in said
                complaints[name] = said
    assert complaints == wording


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("1ms", 1),
        ("90s", 90_000),
        ("20m", 1_200_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
        ("007m", 420_000),
        ("36500d", 36_500 * 86_400_000),
    ],
)
def test_a_duration_is_a_number_with_a_unit(text: str, expected_ms: int) -> None:
    assert parse_duration_ms(text, "--x") == expected_ms
    assert parse_optional_duration_ms(text, "--x") == expected_ms


NO_DURATIONS = (
    ("15", "a number without a unit could mean anything"),
    ("15x", "an unknown unit"),
    ("15M", "minutes or months?"),
    ("0s", "nothing is older than nothing"),
    ("-5m", "negative"),
    ("+5m", "signed"),
    ("1.5h", "a fraction"),
    ("1h30m", "two units"),
    ("NaN", "not a number"),
    ("inf", "not a number either"),
    ("", "empty"),
    ("m", "no number"),
    (" 5m", "white space"),
    ("5 m", "white space inside"),
    ("5m\n", "a line of its own"),
    ("999999999999d", "more than fits"),
    ("36501d", "more than a hundred years"),
    ("٣m", "digits of another script"),
    ("9" * 500 + "ms", "far more than fits"),
)


TIMES = (
    ("2026-01-31T06:00:00Z", 1_769_839_200_000),
    ("2026-01-31T07:00:00.5+01:00", 1_769_839_200_500),
    ("0001-01-01T00:00:00Z", -62_135_596_800_000),
    ("9999-12-31T23:59:59Z", 253_402_300_799_000),
    ("2026-01-31T06:00:00", None),
    ("yesterday", None),
    ("0001-01-01T00:00:00+14:00", None),
    ("9999-12-31T23:59:59-14:00", None),
)


def test_a_time_has_an_offset_and_a_year() -> None:
    with Cases() as cases:
        for text, expected_ms in TIMES:
            with cases.case(text):
                if expected_ms is not None:
                    assert parse_time_ms(text, "--until") == expected_ms
                    continue
                with pytest.raises(ConfigError) as error:
                    parse_time_ms(text, "--until")
                assert error.value.named == "--until"


def test_an_invalid_duration_is_an_error_of_its_option(wording: SnapshotAssertion) -> None:
    complaints = {}
    with Cases() as cases:
        for text, why in NO_DURATIONS:
            with cases.case(why) as name:
                with pytest.raises(ConfigError) as error:
                    parse_optional_duration_ms(text, "--late-after")
                said = str(error.value)
                assert said.startswith("--late-after: '") and "\n" not in said
                complaints[name] = said.replace("9" * 500, "9...")
    assert complaints == wording


def test_the_default_has_no_threshold() -> None:
    assert config().late_after_ms is None


COMPLAINTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("--topic", {"topic": ("ok", "[")}),
    ("--topic", {"topic": "(?P<x"}),
    ("--topic", {"topic": "*\x1b[2J"}),
    ("--topic", {"topic_names": ("..",)}),
    ("--topic", {"topic_names": (".",)}),
    ("--topic", {"topic_names": ("a/b",)}),
    ("--topic", {"topic_names": ("",)}),
    ("--topic", {"topic_names": (LONGEST + "x",)}),
    ("--topic", {"topic_names": ("ä",)}),
    ("--topic", {"topic_names": ("a\n",)}),
    ("--partition", {"topic_names": ("a",), "partitions": (0, -1)}),
    ("--partition", {"partitions": (0,)}),
    ("--broker-id", {"broker_ids": (1, -1)}),
    ("--batch-size", {"batch_size": 0}),
    ("--batch-size", {"batch_size": -1}),
    ("--batch-size", {"batch_size": 10_001}),
    ("--in-flight", {"in_flight_max": 0}),
    ("--in-flight", {"in_flight_max": 10**9}),
    ("--engine", {"engine": "flink"}),
    ("--tables", {"tables": " "}),
)


def test_every_error_starts_with_its_option_and_is_one_line(wording: SnapshotAssertion) -> None:
    complaints = {}
    with Cases() as cases:
        for option, options in COMPLAINTS:
            with cases.case(f"{option}: {options}".replace(LONGEST, "x...")) as name:
                text = complaint(**options)
                assert text.startswith(f"{option}: ") and text.isprintable()
                complaints[name] = text.replace(LONGEST, "x...")
    assert complaints == wording


def test_the_limits_are_inclusive() -> None:
    for options in (
        {"batch_size": 1},
        {"batch_size": 10_000},
        {"in_flight_max": 1},
        {"in_flight_max": 64},
    ):
        assert config(**options)
    assert config(topic_names=(LONGEST, "...", "__consumer_offsets", "A-z.0_9"), partitions=(0,))


def test_a_missing_command_config_is_an_error_of_its_option() -> None:
    with pytest.raises(ConfigError, match=r"^--command-config: /no/such/file does not exist$"):
        config(command_config="/no/such/file").connection()


@pytest.mark.parametrize(
    ("options", "inside", "outside"),
    [
        ({}, ["a", "__transaction_state"], []),
        ({"topic": ("pay.*",)}, ["pay", "payments"], ["xpay", "Pay"]),
        ({"topic": ("a", "b")}, ["a", "b"], ["ab", "c"]),
        ({"topic": "a|bb"}, ["a", "bb"], ["ab", "abb"]),
        ({"topic_names": ("a.b",)}, ["a.b"], ["axb", "a.b.c"]),
        ({"topic": ("a.*",), "topic_names": ("ab", "b")}, ["ab"], ["b", "ac"]),
    ],
)
def test_a_topic_is_in_scope_if_its_whole_name_matches(
    options: dict[str, Any], inside: list[str], outside: list[str]
) -> None:
    chosen = config(**options)
    assert chosen.wanted_topics((*inside, *outside)) == {*inside}


def test_the_scope_is_described() -> None:
    assert config().scope == "all"
    chosen = config(topic="p.*", topic_names=("a",), partitions=(0, 1), broker_ids=(3,))
    assert chosen.scope == "topic=p.*,a partition=0,1 broker=3"


def test_a_configuration_survives_pickling_and_its_settings_are_json() -> None:
    chosen = config(topic=("p.*",), late_after_ms=1_200_000, tables="a.b")
    there = pickle.loads(pickle.dumps(chosen))
    assert there == chosen and there.wanted_topics(("pay", "x")) == {"pay"}
    settings = json.loads(chosen.settings)
    assert settings["topic"] == ["p.*"] and settings["late_after_ms"] == 1_200_000 and settings["batch_size"] == 2_048
    assert not [name for name in settings if name.startswith("_")]


@pytest.mark.parametrize(
    ("text", "expected", "why"),
    [
        ("plain id-1 ä 日本 😀", "plain id-1 ä 日本 😀", "letters stay"),
        ("a\nb\r\t", "a\\nb\\r\\t", "newlines"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m", "ANSI escapes"),
        ("\x9b31m", "\\x9b31m", "the one-byte form of an ANSI escape"),
        ("a\x00b\x07\x7f", "a\\x00b\\x07\\x7f", "control characters"),
        ("\ud800x\udc80", "\\ud800x\\udc80", "lone surrogates"),
        ("\u202eevil", "\\u202eevil", "text direction"),
        ("a\u2028b\u200bc", "a\\u2028b\\u200bc", "invisible ones"),
        ("\U000e0001", "\\U000e0001", "beyond the basic plane"),
    ],
)
def test_control_characters_in_text_are_escaped(text: str, expected: str, why: str) -> None:
    assert printable(text) == expected, why


@given(st.text(st.characters(exclude_categories=[])))
def test_escaped_text_is_printable_and_encodable_on_one_line(text: str) -> None:
    escaped = printable(text)
    assert escaped.isprintable() and len(escaped.splitlines()) <= 1
    assert escaped.encode("utf-8").decode("utf-8") == escaped


# The text, what is opened, whether it is in a catalog, the scheme, and the folder of this machine.
LOCATIONS = [
    ("/data/txnscan", "/data/txnscan", False, "", "/data/txnscan"),
    ("./main.tx-scan", "{cwd}/main.tx-scan", False, "", "{cwd}/main.tx-scan"),
    ("../tables", "{cwd}/../tables", False, "", "{cwd}/../tables"),
    ("demo/tables", "{cwd}/demo/tables", False, "", "{cwd}/demo/tables"),
    ("~/tables", "{home}/tables", False, "", "{home}/tables"),
    ("s3a://bucket/x", "s3a://bucket/x", False, "s3a", None),
    ("S3A://bucket/x", "S3A://bucket/x", False, "s3a", None),
    ("file:/data/x", "file:/data/x", False, "file", "/data/x"),
    ("file:///data/x", "file:///data/x", False, "file", "/data/x"),
    ("dbfs:/x", "dbfs:/x", False, "dbfs", None),
    ("main.txnscan", "main.txnscan", True, "", None),
    ("`my-catalog`.`tx-scan`", "`my-catalog`.`tx-scan`", True, "", None),
    ("`a:b/c`.`d`", "`a:b/c`.`d`", True, "", None),
]


@pytest.mark.parametrize(("text", "opened", "in_catalog", "scheme", "path"), LOCATIONS)
def test_a_location_is_recognized_as_a_path_a_url_or_a_catalog(
    text: str, opened: str, in_catalog: bool, scheme: str, path: str | None
) -> None:
    places = {"cwd": Path.cwd(), "home": Path.home()}
    location = Location.of(text)
    assert location == Location(opened.format(**places), in_catalog)
    assert location.scheme == scheme
    assert location.path == (None if path is None else Path(path.format(**places)))
    assert Location.of(location) is location
    assert ScanConfig("b:1", tables=text).location == location


@pytest.mark.parametrize(
    ("text", "of_table", "sql_name"),
    [
        ("/a/b/", "/a/b/sweeps", "delta.`/a/b/sweeps`"),
        ("/a`b", "/a`b/sweeps", "delta.`/a``b/sweeps`"),
        ("s3a://a/b", "s3a://a/b/sweeps", "delta.`s3a://a/b/sweeps`"),
        ("main.`a`", "main.`a`.sweeps", "main.`a`.sweeps"),
    ],
)
def test_a_location_names_its_tables(text: str, of_table: str, sql_name: str) -> None:
    location = Location.of(text)
    assert (location.of_table("sweeps"), location.sql_name("sweeps")) == (of_table, sql_name)


@pytest.mark.parametrize("text", ["main.tx-scan", "main.a.b", "tables", "main."])
def test_an_invalid_location_is_refused(text: str, wording: SnapshotAssertion) -> None:
    with pytest.raises(ConfigError) as error:
        Location.of(text)
    assert str(error.value).startswith("--tables: ")
    assert str(error.value) == wording
