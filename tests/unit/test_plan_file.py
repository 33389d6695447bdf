"""The plan file: it is read back unchanged, or it is refused before any action."""

from __future__ import annotations

import hashlib
import io
import json
import re
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from tests.builders import LATE_AFTER_MS, NOW_MS, plan, stored
from tests.cases import Cases
from txnscan.report.resolution import print_plan
from txnscan.resolve.guard import ACCEPT_UNKNOWN, COMPLETE_COMMITS
from txnscan.resolve.plan import Action, Plan, PlanRefused, Refusal, check_plan, from_json, to_json

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

EVERY = plan(
    stored(),
    stored(incident_id="incident-2", partition=1, producer_epoch=4, outcome="committed", coordinator_epoch=-1),
    stored(incident_id="incident-3", partition=2, outcome="unknown", transactional_id=None, blocked_records=None),
    stored(incident_id="incident-4", partition=3, verdict="ongoing", reason="owned"),
    stored(incident_id="incident-5", partition=4, outcome="maybe_committed", outcome_reason='ä\u202e"日\n\x1b[31m'),
)
ONE = plan(stored())


def digest_of(body: dict[str, Any]) -> str:
    """The digest of the file: SHA-256 over compact JSON with sorted keys."""
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def edited(edit: Callable[[dict[str, Any]], object], *, of: Plan = EVERY) -> str:
    """The plan's file after an edit that also corrects the digest."""
    body = json.loads(to_json(of))
    del body["digest"]
    edit(body)
    return json.dumps({**body, "digest": digest_of(body)})


def without(field: str, entry_of: str | None = None) -> str:
    """A plan file without a field of its second action or refusal, or of the plan."""
    return edited(lambda body: (body[entry_of][1] if entry_of else body).pop(field))


def action(**changes: Any) -> str:
    """The plan's file with one action changed, and a valid digest."""
    return edited(lambda body: body["actions"][0].update(changes))


def head(**changes: Any) -> str:
    return edited(lambda body: body.update(changes))


# --- actions and refusals ---------------------------------------------------------------------------------------------


def test_each_transaction_is_one_marker_or_one_refusal_in_order(wording: SnapshotAssertion) -> None:
    assert [(a.topic_partition, a.marker, a.needs) for a in EVERY.actions] == [
        ("p-0", "ABORT", None),
        ("p-1", "COMMIT", COMPLETE_COMMITS),
        ("p-2", "ABORT", ACCEPT_UNKNOWN),
    ]
    assert [(r.topic_partition, r.guard) for r in EVERY.refused] == [("p-3", "not_hanging"), ("p-4", "maybe_committed")]
    assert [a.commit for a in EVERY.actions] == [False, True, False]
    assert EVERY.actions[0].why == wording
    assert EVERY.late_after_ms == LATE_AFTER_MS


def test_contradicting_markers_are_both_refused() -> None:
    made = plan(stored(), stored(incident_id="2", partition=1, outcome="committed"))
    assert made.actions == () and [refusal.guard for refusal in made.refused] == ["contradictory"] * 2
    assert from_json(to_json(made)) == made


def test_an_empty_plan_is_valid() -> None:
    empty = plan()
    assert (empty.actions, empty.refused, empty.late_after_ms) == ((), (), 0)


# --- the file ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", [EVERY, ONE, plan()], ids=["every kind", "one", "empty"])
def test_a_plan_survives_a_round_trip_through_its_file(made: Plan) -> None:
    text = to_json(made)
    assert from_json(text) == made and from_json(text).digest == made.digest == json.loads(text)["digest"]
    assert text.isascii() and text.endswith("}\n")


def test_a_plan_with_an_undetermined_outcome_survives_a_round_trip() -> None:
    made = plan(stored(), stored(partition=1, outcome=None, outcome_reason=None))
    assert [refusal.guard for refusal in made.refused] == ["outcome_not_told"]
    assert from_json(to_json(made)) == made


def test_the_digest_covers_the_content_and_not_the_layout() -> None:
    found = json.loads(to_json(EVERY))
    assert found["digest"] == digest_of({name: value for name, value in found.items() if name != "digest"})
    assert from_json(json.dumps(dict(reversed(found.items())))) == EVERY


def other(value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, tuple):
        return (*value, "x")
    return f"{value}x" if isinstance(value, str) else 1 if value is None else value + 1


def changed(entry: Any, name: str) -> Any:
    return replace(entry, **{name: other(getattr(entry, name))})


def test_the_digest_changes_with_every_field_of_the_plan() -> None:
    with Cases() as cases:
        for name in [f.name for f in fields(Plan) if f.name not in ("actions", "refused")]:
            with cases.case(name):
                assert changed(EVERY, name).digest != EVERY.digest


def test_the_digest_changes_with_every_field_of_every_action() -> None:
    with Cases() as cases:
        for field, index in product(fields(Action), range(len(EVERY.actions))):
            with cases.case(f"{field.name} of action {index}"):
                actions = list(EVERY.actions)
                actions[index] = changed(actions[index], field.name)
                assert replace(EVERY, actions=tuple(actions)).digest != EVERY.digest


def test_the_digest_changes_with_every_field_of_every_refusal() -> None:
    with Cases() as cases:
        for field, index in product(fields(Refusal), range(len(EVERY.refused))):
            with cases.case(f"{field.name} of refusal {index}"):
                refused = list(EVERY.refused)
                refused[index] = changed(refused[index], field.name)
                assert replace(EVERY, refused=tuple(refused)).digest != EVERY.digest


def test_the_digest_changes_with_the_order_and_the_number_of_entries() -> None:
    others = (
        replace(EVERY, actions=EVERY.actions[::-1]),
        replace(EVERY, actions=EVERY.actions[1:]),
        replace(EVERY, refused=EVERY.refused[::-1]),
        replace(EVERY, refused=()),
    )
    assert len({EVERY.digest, *(one.digest for one in others)}) == 5


# --- bad files --------------------------------------------------------------------------------------------------------

TEXT = to_json(EVERY)
HUGE = int("9" * 4_000)


def bad_files() -> tuple[tuple[str, str], ...]:
    return (
        # no plan
        ("empty", ""),
        ("prose", "nothing is to be done"),
        ("a byte order mark", f"\ufeff{TEXT}"),
        ("two of them", TEXT + TEXT),
        ("a number of too many digits", f'{{"txnscan_plan": {"9" * 5_000}}}'),
        ("deep nesting", "[" * 100_000),
        ("deep and closed", "[" * 100_000 + "]" * 100_000),
        ("deep objects", '{"txnscan_plan":' * 100_000),
        ("too large", " " * (64 * 1024 * 1024 + 1)),
        # The last of two values was used, and a reader sees the first.
        ("a key twice", TEXT.replace("{", '{"cluster_id": "another", ', 1)),
        ("a marker twice", TEXT.replace('"marker": "ABORT"', '"marker": "COMMIT", "marker": "ABORT"', 1)),
        ("a topic twice", TEXT.replace('"topic": ', '"topic": "q", "topic": ', 1)),
        ("a key twice, once escaped", TEXT.replace('"topic": ', '"\\u0074opic": "q", "topic": ', 1)),
        ("a digest twice", TEXT.replace("{", '{"digest": "", ', 1)),
        ("null", "null"),
        ("a list", f"[{TEXT}]"),
        ("a string", '"txnscan_plan"'),
        ("a number", "1e999"),
        ("another object", '{"digest": ""}'),
        ("a sweep", '{"sweep": {}, "transactions": [], "errors": []}'),
        # of another format
        ("a later format", head(txnscan_plan=3)),
        ("a format that is text", head(txnscan_plan="1")),
        ("a format that is null", head(txnscan_plan=None)),
        ("a format that is a list", head(txnscan_plan=[1])),
        ("a hostile format", head(txnscan_plan="\x1b[2J\n")),
        # edited
        ("an epoch", TEXT.replace('"producer_epoch": 3', '"producer_epoch": 4', 1)),
        ("a marker", TEXT.replace('"ABORT"', '"COMMIT"', 1)),
        ("a refusal", TEXT.replace('"ongoing, not', '"hanging, not').replace("maybe_committed", "unknown", 1)),
        ("a time", TEXT.replace(str(NOW_MS), str(NOW_MS + 1))),
        ("another digest", TEXT.replace(EVERY.digest, "0" * 64)),
        ("a digest in capitals", TEXT.replace(EVERY.digest, EVERY.digest.upper())),
        ("no digest", json.dumps({k: v for k, v in json.loads(TEXT).items() if k != "digest"})),
        ("a digest that is null", json.dumps({**json.loads(TEXT), "digest": None})),
        ("a digest that is a list", json.dumps({**json.loads(TEXT), "digest": [EVERY.digest]})),
        ("a field more", json.dumps({**json.loads(TEXT), "note": ""})),
        ("NaN", '{"txnscan_plan": 2, "actions": NaN, "digest": Infinity}'),
        # incomplete, with a valid digest
        ("no actions", edited(lambda body: body.pop("actions"))),
        ("no refusals", edited(lambda body: body.pop("refused"))),
        ("actions that are null", head(actions=None)),
        ("actions that are an object", head(actions={})),
        ("warnings that are text", head(warnings="none")),
        ("a warning that is null", head(warnings=[None])),
        ("refusals that are text", head(refused="none")),
        ("an action that is null", head(actions=[None])),
        ("an action that is a list", head(actions=[[]])),
        ("a refusal that is text", head(refused=["x"])),
        ("a field of an action more", action(force=True)),
        ("a field of a refusal more", edited(lambda b: b["refused"][0].update(x=1))),
        ("a field of the plan more", head(note="x")),
        *((f"no {f.name} in an action", without(f.name, "actions")) for f in fields(Action)),
        *((f"no {f.name} in a refusal", without(f.name, "refused")) for f in fields(Refusal)),
        *((f"no {f.name} in the plan", without(f.name)) for f in fields(Plan) if f.name not in ("actions", "refused")),
        # wrong types, with a valid digest
        *(
            (f"{f.name} that is {value!r}", action(**{f.name: value}))
            for f in fields(Action)
            for value in (True, 3.0, [], {}, *(() if "None" in str(f.type) else (None,)))
        ),
        *(
            (f"{name} that is text", action(**{name: "3"}))
            for name in ("partition", "producer_id", "producer_epoch", "coordinator_epoch", "start_offset")
        ),
        *(
            (f"{name} that is a number", action(**{name: 3}))
            for name in ("topic", "marker", "needs", "outcome", "incident_id", "transactional_id")
        ),
        ("a planned_at_ms that is true", head(planned_at_ms=True)),
        ("a planned_at_ms that is NaN", head(planned_at_ms=float("nan"))),
        ("a cluster that is null", head(cluster_id=None)),
        ("a refusal without an offset", edited(lambda b: b["refused"][0].update(start_offset=None))),
        # numbers outside Kafka's ranges
        *(
            (f"{name} {value}", action(**{name: value}))
            for name, low, high in (
                ("partition", 0, 2**31 - 1),
                ("producer_id", 0, 2**63 - 1),
                ("producer_epoch", 0, 32_767),
                ("coordinator_epoch", -1, 2**31 - 1),
                ("start_offset", 0, 2**63 - 1),
            )
            for value in (low - 1, high + 1, -HUGE, HUGE)
        ),
        # invalid topic names
        *(
            (f"topic {name!r}", action(topic=name))
            for name in ("", ".", "..", "p q", "p\n", "\np", "p/0", "ä", "p\x00", "\ud800", "p" * 250, "p٣")
        ),
        # actions that no guard allows
        *((f"reason {reason!r}", action(reason=reason)) for reason in ("live_epoch", "owned", "decided", "", "ORPHAN")),
        *(
            (f"{marker} of {outcome!r} with {needs}", action(outcome=outcome, marker=marker, needs=needs))
            for outcome, right in (
                ("committed", ("COMMIT", COMPLETE_COMMITS)),
                ("not_committed", ("ABORT", None)),
                ("unknown", ("ABORT", ACCEPT_UNKNOWN)),
                ("maybe_committed", None),
                ("aborted", None),
                ("", None),
            )
            for marker in ("COMMIT", "ABORT", "abort", "")
            for needs in (None, COMPLETE_COMMITS, ACCEPT_UNKNOWN, "--force")
            if (marker, needs) != right
        ),
        (
            "an abort of what may be committed",
            action(reason="missed_commit", outcome="unknown", needs=ACCEPT_UNKNOWN),
        ),
        # duplicates
        ("an action twice", edited(lambda b: b["actions"].append(b["actions"][0]))),
        (
            "another action for the same producer",
            edited(lambda b: b["actions"][1].update(partition=0, start_offset=200)),
        ),
        # sequences
        ("a commit and an abort at one epoch", edited(lambda b: b["actions"][1].update(producer_epoch=3))),
        ("an abort and a commit at one epoch", edited(lambda b: b["actions"][2].update(producer_epoch=4))),
    )


def test_each_bad_file_is_refused_with_its_reason(wording: SnapshotAssertion) -> None:
    sentences = {}
    with Cases() as cases:
        for bad, text in bad_files():
            with cases.case(ascii(bad)[1:-1].replace(str(HUGE), "HUGE")) as name:
                with pytest.raises(PlanRefused) as refused:
                    from_json(text)
                sentence = str(refused.value)
                assert sentence.startswith("plan: ") and "\n" not in sentence
                sentences[name] = sentence.replace(str(HUGE), "HUGE")
    assert sentences == wording


LONG = "x" * 1_000_000
# Each text of the file that a refusal may show.
LONG_TEXTS = {
    "the format": json.dumps({"txnscan_plan": LONG}),
    "a topic": action(topic=LONG),
    "a reason": action(reason=LONG),
    "a marker": action(marker=LONG),
    "an outcome": action(outcome=LONG),
    "a cluster": head(cluster_id=LONG),
}


def test_a_refusal_shows_no_long_text_of_the_file() -> None:
    with Cases() as cases:
        for name, text in LONG_TEXTS.items():
            with cases.case(name):
                with pytest.raises(PlanRefused) as refused:
                    check_plan(from_json(text), cluster_id="another", now_ms=NOW_MS, max_age_ms=1)
                assert len(str(refused.value.of("plan.json"))) < 1_000


def test_a_truncated_file_is_refused_at_every_length() -> None:
    text = to_json(ONE)
    for end in range(len(text.rstrip())):
        with pytest.raises(PlanRefused):
            from_json(text[:end])


def test_a_file_of_any_nesting_depth_is_refused() -> None:
    for depth in range(1, sys.getrecursionlimit() + 1):
        with pytest.raises(PlanRefused):
            from_json(f'{{"txnscan_plan": 2, "x": {"[" * depth}{"]" * depth}}}')


ACCEPTED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("the largest numbers", {"partition": 2**31 - 1, "producer_id": 2**63 - 1, "producer_epoch": 32_767}),
    ("the largest offset and coordinator epoch", {"start_offset": 2**63 - 1, "coordinator_epoch": 2**31 - 1}),
    ("the smallest numbers", {"producer_id": 0, "producer_epoch": 0, "coordinator_epoch": -1, "start_offset": 0}),
    ("the longest topic", {"topic": "p" * 249}),
    ("a topic of dots", {"topic": "..."}),
    ("a commit that is proven", {"reason": "missed_commit", "outcome": "committed", "marker": "COMMIT"}),
    ("text of any kind", {"why": "\ud800\x1b\n", "transactional_id": "", "incident_id": ""}),
)


@pytest.mark.parametrize("changes", [one[1] for one in ACCEPTED], ids=[one[0] for one in ACCEPTED])
def test_the_limits_of_kafka_are_accepted(changes: dict[str, Any]) -> None:
    needs: dict[str, Any] = {"needs": COMPLETE_COMMITS} if changes.get("marker") == "COMMIT" else {}
    made = replace(EVERY, actions=(replace(EVERY.actions[0], **changes, **needs),))
    assert from_json(to_json(made)) == made


def test_several_transactions_per_partition_and_partitions_per_producer_are_allowed() -> None:
    made = plan(stored(), stored(producer_id=8, incident_id="2"), stored(partition=1, incident_id="3"))
    assert from_json(to_json(made)) == made


_CHARACTERS = st.sampled_from([*'0123456789.-+eE"\\{}[],: \n\t_', "\x00", "\ud800"]) | st.characters()


@settings(max_examples=1_000)
@given(st.integers(0, len(TEXT)), st.integers(0, 1), st.just("") | _CHARACTERS)
def test_a_change_of_one_character_is_refused_or_has_no_effect(at: int, gone: int, new: str) -> None:
    try:
        found = from_json(TEXT[:at] + new + TEXT[at + gone :])
    except PlanRefused:
        return
    assert found == EVERY


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_NAMES = st.sampled_from([f.name for f in fields(Action)])


@settings(max_examples=300)
@given(st.dictionaries(_NAMES, _JSON, max_size=3), st.dictionaries(_NAMES | st.just("digest"), _JSON, max_size=2))
def test_arbitrary_fields_with_a_valid_digest_are_accepted_or_refused(
    in_action: dict[str, Any], in_plan: dict[str, Any]
) -> None:
    def edit(body: dict[str, Any]) -> None:
        body["actions"][0].update(in_action)
        body.update({name: value for name, value in in_plan.items() if name != "digest"})

    try:
        found = from_json(edited(edit))
    except PlanRefused:
        return
    assert all(0 <= a.producer_epoch <= 32_767 and a.marker in ("COMMIT", "ABORT") for a in found.actions)


# --- before an apply --------------------------------------------------------------------------------------------------

HOUR_MS = 3_600_000


@pytest.mark.parametrize("age_ms", [0, HOUR_MS, -60_000])
def test_a_fresh_plan_of_this_cluster_is_accepted(age_ms: int) -> None:
    check_plan(EVERY, cluster_id="cluster-1", now_ms=NOW_MS + age_ms, max_age_ms=HOUR_MS)


def test_an_old_plan_and_a_plan_of_another_cluster_are_refused(wording: SnapshotAssertion) -> None:
    sentences = {}
    with Cases() as cases:
        for cluster_id, age_ms in (
            ("cluster-1", HOUR_MS + 1),
            ("cluster-1", 10**40),
            ("cluster-1", -61_000),
            ("cluster-1", -60_001),
            ("cluster-2", 0),
            ("", 0),
            ("CLUSTER-1", 0),
            ("cluster-2", HOUR_MS + 1),
        ):
            with cases.case(f"cluster {cluster_id!r}, {age_ms} ms old") as name:
                with pytest.raises(PlanRefused) as refused:
                    check_plan(EVERY, cluster_id=cluster_id, now_ms=NOW_MS + age_ms, max_age_ms=HOUR_MS)
                sentences[name] = str(refused.value)
    assert sentences == wording


# --- output -----------------------------------------------------------------------------------------------------------


def shown(made: Plan) -> str:
    output = io.StringIO()
    print_plan(Console(file=output, width=300, highlight=False), made, "plan.json")
    return output.getvalue()


def test_a_plan_is_shown_with_each_request_and_each_refusal(wording: SnapshotAssertion) -> None:
    text = shown(EVERY)
    assert EVERY.digest[:12] in text and "sweep-1" in text and "cluster-1" in text
    assert "  ABORT p-0\n" in text and f"  COMMIT p-1; needs {COMPLETE_COMMITS}\n" in text
    assert text.count("WriteTxnMarkers: producer id 7") == 3
    assert text.count("coordinator epoch 0, transaction") == 3, "a coordinator epoch that is not known is sent as 0"
    assert "p-3  owned" in text and "not_hanging: " in text
    empty = shown(plan())
    assert "txnscan apply" in text and "txnscan apply" not in empty
    assert {"every kind": in_words(text), "empty": in_words(empty)} == wording


def in_words(text: str) -> str:
    """The output without the parts that differ from run to run."""
    return re.sub(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?", "<time>", text)


def test_control_characters_in_a_plan_are_escaped() -> None:
    text = shown(EVERY)
    assert r'ä\u202e"日\n\x1b[31m' in text and "\x1b" not in text and "\u202e" not in text
