"""Sweeps by principals with missing permissions:

each gap is named with its grant command, and causes no false verdict.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from time import sleep

import pytest
import trustme
import yaml

from tests.brokers.locked import Locked
from tests.brokers.offsets import commit_offset_within
from tests.brokers.principals import (
    CASES,
    COMMANDED,
    EMPTY_HANDED,
    HANGING,
    LISTED,
    NEEDS_IDS,
    OFFSETS,
    OWNED,
    PASSWORD,
    REPAIRED,
    RESOLVER,
    REVOKED,
    STATE,
    TOPICS,
    TRUTH,
    WITHOUT,
    Acl,
    Case,
    deny,
    hides,
    of_need,
)
from tests.brokers.shared import Shared, at_stage, started_by
from tests.builders import plan, stored
from tests.cases import Cases
from tests.fakes.applying import FakeJournal
from tests.process import ROOT, run_here
from txnscan import ConfigError
from txnscan.demo import plant
from txnscan.demo.admin import create_topic, unverified
from txnscan.demo.producer import PRODUCE_V1, Producer
from txnscan.demo.requests import Wire
from txnscan.demo.wait import wait_until
from txnscan.kafka.failure import Unobserved
from txnscan.kafka.security import needs
from txnscan.kafka.security.acls import explained, grants
from txnscan.kafka.security.needs import ALTER_CLUSTER, TO_SCAN
from txnscan.resolve.apply import Status, apply_plan
from txnscan.resolve.brokers import LiveBrokers
from txnscan.resolve.guard import ACCEPT_UNKNOWN
from txnscan.sweeps.permissions import PROBES
from txnscan.sweeps.preflight import Level
from txnscan.sweeps.result import Scan

MINUTE_MS = 60_000
COMMAND = re.compile(r"`kafka-acls\.sh --bootstrap-server HOST:PORT --command-config ADMIN\.properties ([^`]*)`")
CASES_BY_USER = {case.user: case for case in CASES}


@pytest.fixture(scope="module")
def locked(shared: Shared, tmp_path_factory: pytest.TempPathFactory) -> Locked:
    wire = shared.wire
    plant.orphan(wire, "acl-clicks")
    plant.live_with_old_timestamps(wire, "acl-backfill")
    plant.stale_epoch(wire, "acl-shipments")
    for topic in ("acl-first", "acl-other", "acl-lone"):
        create_topic(wire, topic, [[1]])
    both = Producer(wire, "acl-both-service")
    both.init_producer_id()
    both.produce("acl-first", 0, [b"record"])
    both.produce("acl-other", 0, [b"record"])
    commit_offset_within(wire, "acl-readers", "acl-first", transactional_id="acl-reader-service")
    write_aside(wire)
    directory = tmp_path_factory.mktemp("locked")
    shutil.copy(shared.directory / "ca.pem", directory)
    return Locked(shared.cluster, wire, directory)


def write_aside(wire: Wire) -> None:
    """A live producer that added one topic to its transaction and wrote to another."""
    producer = Producer(wire, "acl-lone-service", v2=False)
    producer.init_producer_id()
    producer.add_partitions([("acl-other", 0)])
    with unverified(wire):
        producer.produce("acl-lone", 0, [b"record"], version=PRODUCE_V1)


def verdicts(scan: Scan) -> dict[str, tuple[str, str]]:
    """By partition. Kafka chooses the partition of the group's offsets."""
    return {
        "offsets" if j.observation.topic == OFFSETS else j.observation.topic_partition: (
            str(j.judgement.verdict),
            str(j.judgement.reason),
        )
        for j in scan.transactions
    }


def accused(scan: Scan) -> set[str]:
    return {name for name, (verdict, _) in verdicts(scan).items() if verdict == "hanging"}


def words(scan: Scan, error: Unobserved) -> str:
    return explained(error.failure, scan.principal)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.user)
def test_a_sweep_reflects_the_acls_of_its_principal_and_names_the_missing_ones(locked: Locked, case: Case) -> None:
    locked.add(case.user, *case.acls)
    scan = replace(locked, topics=case.topics).swept(case.user)
    expected = {name: verdict for name, verdict in {**TRUTH, **case.differs}.items() if verdict is not None}
    assert verdicts(scan) == expected
    assert scan.complete == case.complete
    # An error common to all brokers counts once.
    told = {re.sub(r"\bbroker \d", "broker N", words(scan, error)) for error in scan.errors}
    for sentence in case.says:
        assert any(sentence in error for error in told), told
    assert len(told) == len(case.says), told
    for error in told:
        assert COMMAND.search(error), error
    assert PASSWORD not in repr(scan)


def test_an_indeterminate_verdict_names_its_missing_acl(locked: Locked) -> None:
    locked.add("ids-by-prefix", *CASES_BY_USER["ids-by-prefix"].acls)
    scan = locked.swept("ids-by-prefix")
    (orphan,) = [j.judgement.explanation for j in scan.transactions if j.observation.topic == "acl-clicks"]
    assert NEEDS_IDS in orphan
    assert any("--transactional-id '*'`" in words(scan, error) for error in scan.errors)


def test_without_describe_on_groups_a_warning_names_the_grant(locked: Locked) -> None:
    for user in ("everything", "no-groups"):
        locked.add(user, *CASES_BY_USER[user].acls)
    assert locked.swept("everything").warnings == ()
    groups, configs = locked.swept("no-groups").warnings
    assert groups.count("needs Describe on Group '*'") == 1 and "--operation Describe --group '*'`" in groups
    assert "needs DescribeConfigs on Topic '*'" in configs


def test_check_reports_missing_group_permissions_in_advance(locked: Locked) -> None:
    for user, notes in (("everything", 0), ("no-groups", 1)):
        locked.add(user, *CASES_BY_USER[user].acls)
        found = [one for one in locked.checked(user).findings if "needs Describe on Group '*'" in one.said]
        assert [(one.area, one.level) for one in found] == [("acls", Level.NOTE)] * notes


def of_docs(heading: str) -> tuple[list[str], set[tuple[str, str]]]:
    """Below a heading of docs/acls.md: the options of each `kafka-acls.sh` line, and the operations of the KafkaUser
    with Strimzi's types of resources.
    """
    page = (ROOT / "docs" / "acls.md").read_text("utf-8")
    _, _, section = page.partition(f"\n## {heading}\n")
    (lines,) = re.findall(r"```sh\n(.*?)```", section.split("\n## ")[0], re.S)
    (user,) = re.findall(r"```yaml\n(.*?)```", section.split("\n## ")[0], re.S)
    rules = yaml.safe_load(user)["spec"]["authorization"]["acls"]
    assert all(rule["resource"].get("name", "*") == "*" for rule in rules)
    return [line.partition("ADMIN.properties ")[2] for line in lines.splitlines()], {
        (operation, rule["resource"]["type"].lower()) for rule in rules for operation in rule["operations"]
    }


@pytest.mark.parametrize(
    ("user", "heading", "needed"),
    [
        ("txnscan", "Grant the reading principal", TO_SCAN),
        ("txnscan-apply", "Grant the applying principal", (*TO_SCAN, ALTER_CLUSTER)),
    ],
)
def test_exactly_the_acls_of_the_docs_suffice(
    locked: Locked, user: str, heading: str, needed: tuple[needs.Acl, ...]
) -> None:
    lines, of_user = of_docs(heading)
    assert of_user == {(one.operation, one.resource_type.lower()) for one in needed}
    for line in lines:
        locked.run(line)
    rules = [replace(of_need(one), principal=f"User:{user}") for one in needed]
    wait_until(lambda: all(map(locked.stands, rules)), "the rules stood")
    applies = user == "txnscan-apply"
    checked = locked.checked(user, applies=applies)
    assert checked.lacking == () and "acls" not in {one.area for one in checked.findings if one.level is not Level.OK}
    whole = replace(locked, topics=()).swept(user)
    assert (whole.visibility_failures, whole.warnings) == ((), ())
    assert not [error for error in whole.errors if error.failure.needs is not None]
    # A reading principal lacks the right of the other one, and is not told to have it.
    assert locked.checked(user, applies=True).lacking == (() if applies else (ALTER_CLUSTER.permission,))


def without(missing: needs.Acl) -> list[needs.Acl]:
    """The list without this row, and without the rows that allow the same: Read, Write and Alter imply Describe."""
    implies = ("Read", "Write", "Alter") if missing.operation == "Describe" else ()
    others = (one for one in needs.ACLS if one is not missing)
    return [one for one in others if one.resource_type != missing.resource_type or one.operation not in implies]


def test_check_names_exactly_the_acls_that_are_missing(locked: Locked) -> None:
    with Cases() as cases:
        for user, missing in WITHOUT.items():
            with cases.case(user):
                locked.add(user, *map(of_need, without(missing)))
                checked = replace(locked, topics=()).checked(user, applies=True)
                left_out = {one.permission for one in PROBES if one not in without(missing)}
                assert set(checked.lacking) == left_out


def test_check_lists_all_missing_acls_at_once_and_their_grants_suffice(locked: Locked) -> None:
    """Also for a principal that has no ACL at all: no missing ACL hides another."""
    before = replace(locked, topics=()).checked(EMPTY_HANDED)
    assert set(before.lacking) == {one.permission for one in TO_SCAN}
    assert not [one for one in before.findings if "Alter" in one.said]
    for command in grants(before.lacking, f"User:{EMPTY_HANDED}"):
        locked.run(command.partition("ADMIN.properties ")[2])
    rules = [replace(of_need(one), principal=f"User:{EMPTY_HANDED}") for one in TO_SCAN]
    wait_until(lambda: all(map(locked.stands, rules)), "the rules stood")
    after = replace(locked, topics=()).checked(EMPTY_HANDED)
    assert after.lacking == () and after.level is Level.NOTE


# No client can detect that a topic is denied to it alone. A sweep notices if a transaction has partitions that it
# does not see.
UNDETECTABLE = "denied-a-topic"


@pytest.mark.parametrize("case", [one for one in CASES if one.user != UNDETECTABLE], ids=lambda case: case.user)
def test_check_and_sweep_agree_about_the_acls(locked: Locked, case: Case) -> None:
    """If `check` reports nothing that makes a sweep incomplete, the sweep is complete, and the reverse."""
    locked.add(case.user, *case.acls)
    here = replace(locked, topics=case.topics)
    try:
        level = here.checked(case.user).level
    except ConfigError:
        with pytest.raises(ConfigError):
            here.swept(case.user)
        return
    assert (level in (Level.OK, Level.NOTE)) == here.swept(case.user).complete


def test_without_describe_configs_the_brokers_default_is_assumed(locked: Locked) -> None:
    locked.add("no-configs", *CASES_BY_USER["no-configs"].acls)
    scan = locked.swept("no-configs")
    assert scan.late_after_ms == 20 * MINUTE_MS
    assert [words(scan, error) for error in scan.errors if "to be 15 min" in words(scan, error)]


def test_the_grant_commands_of_a_sweep_make_the_next_sweep_complete(locked: Locked) -> None:
    denials = (
        deny("Describe", "TransactionalId", "acl-backfill-service"),
        deny("All", "TransactionalId", "acl-ship", prefixed=True, host="127.0.0.1"),
    )
    locked.add(COMMANDED, *TOPICS, *denials)
    for _ in range(3):
        scan = locked.swept(COMMANDED)
        commands = {match[1] for error in scan.errors for match in COMMAND.finditer(words(scan, error))}
        assert bool(commands) == bool(scan.errors)
        for command in sorted(commands):
            locked.run(command)
    scan = locked.swept(COMMANDED)
    assert (verdicts(scan), scan.complete, scan.errors) == (TRUTH, True, ())


def test_without_alter_on_the_cluster_no_marker_is_written_and_the_grant_is_named(
    locked: Locked,
) -> None:
    planted = plant.orphan(locked.wire, "acl-resolvable")
    locked.add(RESOLVER, *LISTED)
    scan = locked.swept(RESOLVER)
    (found,) = [j for j in scan.transactions if j.observation.topic == "acl-resolvable"]
    o = found.observation
    one = stored(
        topic="acl-resolvable",
        **{name: getattr(o, name) for name in ("topic_id", "producer_id", "producer_epoch", "coordinator_epoch")},
        start_offset=planted.start_offset,
        outcome=found.outcome,
        reason=str(found.judgement.reason),
        owner_epoch=None,
    )
    # A second action, which the plan does not reach.
    made = plan(one, stored(incident_id="other"))
    brokers, options = LiveBrokers(locked.config(RESOLVER)), (ACCEPT_UNKNOWN,)
    first, second = apply_plan(made, brokers, FakeJournal(), execute=True, options=options, sleep=sleep)
    assert first.status is Status.FAILED and "needs Alter on Cluster" in first.detail
    assert second.status is Status.REFUSED and "for a missing ACL" in second.detail
    assert plant.open_transaction(locked.wire, "acl-resolvable", 0, o.producer_id) is not None
    (command,) = [match[1] for match in COMMAND.finditer(first.detail)]
    locked.run(command)
    journal = FakeJournal()

    def resolved() -> bool:
        first, *_ = apply_plan(made, brokers, journal, execute=True, options=options, sleep=sleep)
        return first.status is Status.RESOLVED

    wait_until(resolved, "the rule stood and the marker was written")


def test_a_name_that_the_principal_may_not_see_is_not_observed_and_another_one_does_not_exist(locked: Locked) -> None:
    locked.add("everything", *CASES_BY_USER["everything"].acls)
    symptoms = {
        "explain --topic": ("explain", "--topic", "acl-click"),
        "explain --group": ("explain", "--group", "acl-reader"),
        "explain --transactional-id": ("explain", "--transactional-id", "acl-both-servise"),
        "describe": ("describe", "--transactional-id", "acl-both-servise"),
        "find-hanging --topic": ("find-hanging", "--topic", "acl-click"),
        "describe-producers": ("describe-producers", "--topic", "acl-click"),
        "gate": ("gate", "--topic", "acl-click"),
        "transaction-log": ("transaction-log", "--transactional-id", "acl-both-servise"),
    }
    meant = {"topic": "acl-clicks", "group": "acl-readers", "id": "acl-both-service"}
    with Cases() as cases:
        for name, words in symptoms.items():
            for user, statuses in (("everything", {2}), ("nothing", {1, 4})):
                with cases.case(f"{name} as {user}"):
                    config = locked.config(user)
                    servers = ("--bootstrap-server", config.bootstrap_servers)
                    ran = run_here(*words, *servers, "--command-config", str(config.command_config))
                    assert ran.returncode in statuses, ran.stdout + ran.stderr
                    said = ran.stdout + ran.stderr
                    assert any(f"'{one}'" in said for one in meant.values()) is (user == "everything")
                    assert user == "everything" or "kafka-acls.sh" in said


def test_a_pattern_that_may_match_hidden_topics_is_a_warning(locked: Locked) -> None:
    """The principal may see topics by their prefix alone, so that no sweep of it is of all topics."""
    case = CASES_BY_USER["no-coordinators"]
    locked.add(case.user, *case.acls)
    scan = locked.swept(case.user)
    assert [one for one in scan.warnings if one.startswith("--topic ") and "--operation Describe --topic '*'" in one]
    assert not [one for one in scan.errors if one.failure.needs == needs.DESCRIBE_TOPICS.permission]


def test_a_command_that_reads_less_than_was_asked_says_so(locked: Locked) -> None:
    locked.add("no-ids", *CASES_BY_USER["no-ids"].acls)
    commands = {
        "list": ("list",),
        "describe": ("describe", "--transactional-id", "acl-backfill-service"),
        "describe-producers": ("describe-producers", "--open"),
        "coordinator": ("coordinator", "--transactional-id", "acl-backfill-service"),
        "transaction-log": ("transaction-log", "--transactional-id", "acl-backfill-service"),
        "find-hanging": ("find-hanging", "--fail-on", "incomplete"),
    }
    # The topic of coordinators is visible without the right to describe ids, and its log may be read.
    whole = {"no-ids": {"coordinator", "transaction-log"}}
    with Cases() as cases:
        for name, words in commands.items():
            for user in ("nothing", "no-ids"):
                with cases.case(f"{name} as {user}"):
                    config = locked.config(user)
                    servers = ("--bootstrap-server", config.bootstrap_servers)
                    ran = run_here(*words, *servers, "--command-config", str(config.command_config))
                    if name in whole.get(user, ()):
                        assert ran.returncode == 0
                        continue
                    assert ran.returncode in (1, 4), ran.stdout + ran.stderr
                    assert "kafka-acls.sh" in ran.stdout + ran.stderr


@pytest.mark.parametrize("stage", ["read every partition", "first read", "ask coordinators", "second read"])
@pytest.mark.parametrize(
    "rule",
    [
        deny("Describe", "TransactionalId", "*"),
        deny("Describe", "TransactionalId", "acl-backfill-service"),
        deny("Describe", "Topic", "acl-other"),
        deny("Describe", "Topic", OFFSETS),
        deny("Describe", "Topic", STATE),
        deny("Read", "Topic", "*"),
        deny("All", "Cluster", "kafka-cluster"),
    ],
    ids=lambda rule: f"{rule.operation} on {rule.resource} {rule.name}",
)
def test_a_permission_revoked_during_a_sweep_causes_no_false_verdict(locked: Locked, rule: Acl, stage: str) -> None:
    locked.add(REVOKED, *LISTED)
    rule = replace(rule, principal=f"User:{REVOKED}")
    try:
        scan = locked.swept(REVOKED, at_stage(stage, lambda: locked.add(REVOKED, rule)))
        assert locked.stands(rule)
    finally:
        locked.remove(rule)
    assert accused(scan) <= accused_in_truth()
    assert verdicts(scan).keys() == TRUTH.keys(), "nothing that was seen to be open is forgotten"


def accused_in_truth() -> set[str]:
    return {name for name, (verdict, _) in TRUTH.items() if verdict == "hanging"}


def test_a_rule_removed_during_a_sweep_causes_no_false_verdict(locked: Locked) -> None:
    rules = locked.add(REPAIRED, *LISTED, deny("Describe", "TransactionalId", "acl-backfill-service"))
    scan = locked.swept(REPAIRED, at_stage("first read", lambda: locked.remove(rules[-1])))
    assert accused(scan) <= accused_in_truth()


def test_with_default_allow_an_id_is_hidden_by_a_rule_for_another_principal(
    tmp_path: Path,
) -> None:
    everybody = {"allow.everyone.if.no.acl.found": "true"}
    with (
        started_by(tmp_path, trustme.CA(), brokers=1, properties=everybody) as cluster,
        cluster.wire() as wire,
    ):
        plant.live_with_old_timestamps(wire)
        plant.orphan(wire)
        house = Locked(cluster, wire, tmp_path, topics=())
        scan = house.swept(REPAIRED)
        assert (verdicts(scan), scan.complete) == ({"backfill-0": OWNED, "clicks-0": HANGING}, True)
        house.add("backfill", Acl("All", "TransactionalId", "backfill-", prefixed=True))
        scan = house.swept(REPAIRED)
        assert (verdicts(scan), scan.complete) == (hides("backfill-0", "clicks-0"), False)
        # A rule on '*' would hide all other ids from other principals.
        (error,) = scan.errors
        assert "TransactionalId prefix 'backfill-'" in words(scan, error)
        assert "'*'" not in words(scan, error)
