"""Real and simulated brokers answer alike: some scripts of `tests/prove/scripts.py`, on every version.

The answers must also equal the recorded ones (`tests/golden/states.py`). All scripts:
`python -m tests.prove.conformance`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.golden import states, store
from tests.golden.compare import scripts_differ
from tests.golden.raw import Sockets
from tests.golden.record import VERSIONS
from tests.prove.conformance import Numbers, cluster_of, conform, observed
from tests.prove.scripts import SCRIPTS
from tests.prove.stage import ALL_SETTINGS, OF_ITSELF, OLD_V1, settings_of
from tests.sim.answers import answer
from tests.sim.scenarios import opened
from tests.sim.transitions import settle
from tests.sim.world import Scenario
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.requests import Wire

BY_NAME = {script.name: script for script in SCRIPTS}


@dataclass(frozen=True)
class Brokers:
    """Real brokers of one version, and connections to them."""

    cluster: KafkaCluster
    wire: Wire
    sockets: Sockets


@pytest.fixture(scope="module", params=VERSIONS)
def brokers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Three brokers of one version at a time."""
    with (
        cluster_of(request.param, tmp_path_factory.mktemp("conformance")) as (cluster, wire),
        Sockets(cluster.brokers) as sockets,
    ):
        yield Brokers(cluster, wire, sockets)


def differences(brokers: Brokers, name: str) -> list[str]:
    """The differences of these brokers from the simulator, and from the recording, at every step of the script."""
    script, kafka = BY_NAME[name], brokers.cluster.version
    found: list[str] = []
    for setting in settings_of(script.on):
        if setting.kafka == kafka:
            recorder = states.Recorder(script, setting, brokers.sockets)
            result = conform(brokers.cluster, brokers.wire, script, setting, recorder.after)
            found += result.differences or scripts_differ(store.read(kafka, states.PART), recorder.states)
    return found


def test_a_fence_and_a_later_commit_have_the_simulated_epochs(brokers: Brokers) -> None:
    assert differences(brokers, "fence") == []


def test_late_data_after_an_abort_opens_a_transaction_exactly_as_simulated(brokers: Brokers) -> None:
    assert differences(brokers, "late-unverified") == []


def test_a_moved_coordinator_keeps_ongoing_transactions_as_simulated(brokers: Brokers) -> None:
    assert differences(brokers, "ongoing-moved") == []


def test_every_script_has_a_unique_name_and_a_setting() -> None:
    assert len(BY_NAME) == len(SCRIPTS)
    assert all(script.on and set(settings_of(script.on)) <= set(ALL_SETTINGS) for script in SCRIPTS)
    assert any(OLD_V1 in script.on for script in SCRIPTS)


def test_observations_differ_if_a_simulated_broker_behaves_differently() -> None:
    scenario = Scenario("s", topics=((("p", 0), (1, 2)),), coordinators=((1, 2),), versions=(1,))
    begun = (("InitProducerId", (1, "a")), ("AddPartitionsToTxn", (1, "a", ("p", 0))))
    ends = [opened(scenario, (*begun, ("EndTxn", (1, "a", commit, 1)))) for commit in (True, False)]
    for world in ends:
        settle(world, OF_ITSELF)
    one, two = (
        observed(lambda b, r, of=world: answer(of, b, r), (1, 2), [("p", 0)], ["a"], Numbers()) for world in ends
    )
    assert {what for what in one if one[what] != two[what]} == {
        "broker 1: DescribeTransactions a",
        "broker 1: ListTransactions",
    }
