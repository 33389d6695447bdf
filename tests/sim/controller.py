"""The controller, and the lives of brokers: which are registered, which lead, and when each broker receives the
metadata.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.sim.coordinator import forget
from tests.sim.records import NOBODY, Coordinator, Leadership, LetIn, common_prefix
from tests.sim.table import Subject, Transition
from tests.sim.world import DEPOSED_CONTROLLER, KEPT_EPOCHS, LOST_LOG_END, World
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Key

# --- the controller ---------------------------------------------------------------------------------------------------


def _led(world: World, key: Key, leadership: Leadership) -> None:
    number = world.index[key]
    before = world.image.leaderships
    changed = leadership._replace(partition_epoch=leadership.partition_epoch + 1)
    world.image = world.image.changed(leaderships=(*before[:number], changed, *before[number + 1 :]))


def _fenceable(world: World) -> Iterable[Subject]:
    for broker_id, broker in world.brokers.items():
        if broker_id in world.image.brokers and (broker.run != "up" or not broker.linked):
            yield (broker_id,)


def _fence(world: World, broker_id: int) -> None:
    world.image = world.image.changed(brokers=world.image.brokers - {broker_id})
    for key, replicas in world.scenario.partitions:
        old = world.leadership(world.image, key)
        isr = old.isr - {broker_id} or old.isr
        if old.leader == broker_id:
            leader = next((b for b in replicas if b in isr and b in world.image.brokers), NOBODY)
            _led(world, key, old._replace(leader=leader, epoch=old.epoch + 1, isr=isr))
        elif isr != old.isr:
            _led(world, key, old._replace(isr=isr, epoch=old.epoch + world.scenario.reloads))


def _unfenceable(world: World) -> Iterable[Subject]:
    for broker_id, broker in world.brokers.items():
        if broker_id not in world.image.brokers and broker.run == "up" and broker.linked:
            yield (broker_id,)


def _unfence(world: World, broker_id: int) -> None:
    world.image = world.image.changed(brokers=world.image.brokers | {broker_id})
    for key, _ in world.scenario.partitions:
        old = world.leadership(world.image, key)
        if old.leader == NOBODY and broker_id in old.isr:
            _led(world, key, old._replace(leader=broker_id, epoch=old.epoch + 1))


def _movable(world: World) -> Iterable[Subject]:
    for key, replicas in world.scenario.partitions:
        now = world.leadership(world.image, key)
        if now.leader != NOBODY:
            yield from ((key, b) for b in replicas if b != now.leader and b in now.isr and b in world.image.brokers)


def _move(world: World, key: Key, broker_id: int) -> None:
    old = world.leadership(world.image, key)
    _led(world, key, old._replace(leader=broker_id, epoch=old.epoch + 1))


def _expandable(world: World) -> Iterable[Subject]:
    for key, replicas in world.scenario.partitions:
        now = world.leadership(world.image, key)
        if len(now.isr) == len(replicas):
            continue
        believed = world.leads(now.leader, key) if now.leader != NOBODY else None
        if believed is None or believed.epoch != now.epoch or not world.up(now.leader):
            continue
        if max(believed.partition_epoch, world.let_in_by(now.leader, key).partition_epoch) != now.partition_epoch:
            continue  # the leader has not heard of the last change, and the controller refuses: INVALID_UPDATE_VERSION
        log, mark = world.logs[key, now.leader], world.high_watermarks[key, now.leader]
        alive = world.brokers[now.leader].metadata.brokers
        for b in replicas:
            known = world.leadership(world.brokers[b].replicas, key)
            follows = b not in now.isr and world.up(b) and known.epoch == now.epoch
            reached = max(mark, world.epoch_starts[key, now.leader])
            if follows and b in alive & world.image.brokers and common_prefix(log, world.logs[key, b]) >= reached:
                yield (key, b)


def _expand(world: World, key: Key, broker_id: int) -> None:
    old = world.leadership(world.image, key)
    _led(world, key, old._replace(isr=old.isr | {broker_id}))
    replicas = world.let_in_by(old.leader, key).replicas | {broker_id}
    world.let_in[key, old.leader] = LetIn(replicas, world.leadership(world.image, key).partition_epoch)


def _shrinkable(world: World) -> Iterable[Subject]:
    for key, replicas in world.scenario.partitions:
        now = world.leadership(world.image, key)
        believed = world.leads(now.leader, key) if now.leader != NOBODY else None
        if believed != now or not world.up(now.leader) or not world.brokers[now.leader].linked:
            continue
        log = world.logs[key, now.leader]
        for b in replicas:
            if b != now.leader and b in now.isr and common_prefix(log, world.logs[key, b]) < len(log):
                yield (key, b)


def _shrink(world: World, key: Key, broker_id: int) -> None:
    old = world.leadership(world.image, key)
    _led(world, key, old._replace(isr=old.isr - {broker_id}, epoch=old.epoch + world.scenario.reloads))


def _uncleanly(world: World) -> Iterable[Subject]:
    for key, replicas in world.scenario.topics:
        if world.leadership(world.image, key).leader == NOBODY:
            yield from ((key, b) for b in replicas if b in world.image.brokers)


def _elect_uncleanly(world: World, key: Key, broker_id: int) -> None:
    old = world.leadership(world.image, key)
    _led(world, key, old._replace(leader=broker_id, epoch=old.epoch + 1, isr=frozenset({broker_id})))


def _uncleanly_coordinated(world: World) -> Iterable[Subject]:
    for key, replicas in world.scenario.partitions:
        if key[0] == TRANSACTION_STATE_TOPIC and world.leadership(world.image, key).leader == NOBODY:
            yield from ((key, b) for b in replicas if b in world.image.brokers)


def _crashed(world: World) -> Iterable[Subject]:
    for key, replicas in world.scenario.partitions:
        if key[0] == TRANSACTION_STATE_TOPIC:
            down = (b for b in replicas if world.brokers[b].run == "down")
            yield from ((key, b, end) for b in down for end in range(1, len(world.logs[key, b])))


def _lose_end(world: World, key: Key, broker_id: int, end: int) -> None:
    world.logs[key, broker_id] = world.logs[key, broker_id][:end]
    world.high_watermarks[key, broker_id] = min(end, world.high_watermarks[key, broker_id])


def _replaceable(world: World) -> Iterable[Subject]:
    for key, replicas in world.scenario.topics:
        now = world.leadership(world.image, key)
        for b in replicas:
            others = now.leader not in (NOBODY, b) and now.isr - {b}
            if others and b in world.image.brokers and world.up(b) and world.leads(b, key) is None:
                yield (key, b)


def _replace_replica(world: World, key: Key, broker_id: int) -> None:
    old = world.leadership(world.image, key)
    _led(world, key, old._replace(isr=old.isr - {broker_id}, epoch=old.epoch + 1))
    world.logs[key, broker_id] = ()
    for offsets in (world.log_starts, world.high_watermarks, world.epoch_starts):
        offsets[key, broker_id] = 0


CONTROLLER = (
    Transition(
        "fence broker",
        _fenceable,
        _fence,
        "The controller has not heard of a broker for broker.session.timeout.ms: it leaves every in-sync set, unless "
        "it is the last in it, and another in-sync replica leads at the next leader epoch, or nobody does. In Kafka "
        "3.5 a set that shrinks raises the leader epoch too (ReplicationControlManager.handleBrokerFenced, "
        "KAFKA-15021).",
        of="{0}",
    ),
    Transition(
        "unfence broker",
        _unfenceable,
        _unfence,
        "A broker that has caught up with the metadata serves again, and leads what waited for it "
        "(ReplicationControlManager.handleBrokerUnfenced).",
        of="{0}",
    ),
    Transition(
        "move leader",
        _movable,
        _move,
        "A preferred election or a reassignment makes another in-sync replica the leader.",
        of="{0} to broker {1}",
        fault="leader move",
    ),
    Transition(
        "expand isr",
        _expandable,
        _expand,
        "A follower that has caught up, and that the leader knows to be alive, is in sync again; the leader epoch "
        "stays. So whoever may take over from a leader is named by that leader's metadata. A leader that has not heard "
        "of the set's last change is refused (Partition.maybeExpandIsr, isReplicaIsrEligible, "
        "ReplicationControlManager.validateAlterPartitionData).",
        of="{0} by broker {1}",
    ),
    Transition(
        "shrink isr",
        _shrinkable,
        _shrink,
        "A follower that has not reached the end of the leader's log for replica.lag.time.max.ms leaves the in-sync "
        "set; the leader epoch stays, except in Kafka 3.5. Its broker runs on. The leader counts it until it hears "
        "of the change (Partition.maybeShrinkIsr, getOutOfSyncReplicas, PendingShrinkIsr.maximalIsr, KAFKA-15021).",
        of="{0} by broker {1}",
        fault="slow follower",
    ),
    Transition(
        "replace replica",
        _replaceable,
        _replace_replica,
        "A reassignment takes a follower's replica away, which raises the leader epoch, and gives it a new one: that "
        "is empty and not in sync, and begins at the start of the leader's log (PartitionReassignmentReplicas, "
        "PartitionChangeBuilder.triggerLeaderEpochBumpForReplicaReassignmentIfNeeded).",
        of="{0} on broker {1}",
        fault="reassignment",
    ),
    Transition(
        "unclean election",
        _uncleanly,
        _elect_uncleanly,
        "A replica that was not in sync leads, and what it lacks is lost (unclean.leader.election.enable).",
        of="{0} to broker {1}",
        fault="unclean election",
    ),
    Transition(
        "unclean election of a coordinator",
        _uncleanly_coordinated,
        _elect_uncleanly,
        "The same for a partition of __transaction_state: its coordinator continues from an older state.",
        of="{0} to broker {1}",
        fault=LOST_LOG_END,
    ),
    Transition(
        "lose log end",
        _crashed,
        _lose_end,
        "The machine of a broker crashes: its replica of __transaction_state loses what it had not flushed "
        "(log.flush.interval.messages, LogLoader.recoverLog).",
        of="{0} on broker {1}, from offset {2} on",
        fault=LOST_LOG_END,
    ),
)


# --- the brokers ------------------------------------------------------------------------------------------------------


def _publishable(world: World) -> Iterable[Subject]:
    for broker_id, broker in world.brokers.items():
        idle = broker.metadata == broker.replicas == broker.elected
        if broker.run == "up" and broker.linked and idle and broker.metadata != world.image:
            yield (broker_id,)


def _publish(world: World, broker_id: int) -> None:
    world.brokers[broker_id] = world.brokers[broker_id]._replace(metadata=world.image)


def _unapplied(world: World) -> Iterable[Subject]:
    return ((b,) for b, broker in world.brokers.items() if broker.run == "up" and broker.replicas != broker.metadata)


def _apply_replicas(world: World, broker_id: int) -> None:
    broker = world.brokers[broker_id]
    old_image = broker.replicas
    world.brokers[broker_id] = broker._replace(replicas=broker.metadata)
    for key, replicas in world.scenario.partitions:
        new, old = world.leadership(broker.metadata, key), world.leadership(old_image, key)
        if new.partition_epoch >= world.let_in_by(broker_id, key).partition_epoch:
            world.let_in.pop((key, broker_id), None)
        if broker_id in replicas and new.leader == broker_id:
            if (old.leader, old.epoch) != (new.leader, new.epoch):
                world.epoch_starts[key, broker_id] = len(world.logs[key, broker_id])
            world.advance(broker_id, key)


def _unelected(world: World) -> Iterable[Subject]:
    for broker_id, broker in world.brokers.items():
        if broker.run == "up" and broker.elected != broker.replicas:
            yield (broker_id,)


def _elect(world: World, broker_id: int) -> None:
    broker = world.brokers[broker_id]
    world.brokers[broker_id] = broker._replace(elected=broker.replicas)
    for k in range(len(world.scenario.coordinators)):
        key = (TRANSACTION_STATE_TOPIC, k)
        now, before = world.leadership(broker.replicas, key), world.leadership(broker.elected, key)
        served = world.coordinators.get((broker_id, k))
        changed = world.scenario.reloads and now != before
        if now.leader != broker_id:
            forget(world, broker_id, k)
        elif served is None or served.epoch != now.epoch or changed:
            forget(world, broker_id, k)
            world.coordinators[broker_id, k] = Coordinator(now.epoch, loading=True)


def _running(world: World) -> Iterable[Subject]:
    return ((b,) for b, broker in world.brokers.items() if broker.run == "up")


def _kill(world: World, broker_id: int) -> None:
    world.brokers[broker_id] = world.brokers[broker_id]._replace(run="down", linked=True)
    world.deposed.pop(broker_id, None)
    for key, _ in world.scenario.partitions:
        world.let_in.pop((key, broker_id), None)
    world.verifications = {at: begun for at, begun in world.verifications.items() if at[1] != broker_id}
    for k in range(len(world.scenario.coordinators)):
        forget(world, broker_id, k)


def _startable(world: World) -> Iterable[Subject]:
    for broker_id, broker in world.brokers.items():
        if broker.run == "down" and broker_id not in world.image.brokers:
            yield (broker_id,)


def _start(world: World, broker_id: int) -> None:
    world.brokers[broker_id] = world.brokers[broker_id]._replace(
        run="up", metadata=world.image, replicas=world.image, elected=world.image
    )
    # Only with kept leader epochs does it still lead.
    for key, replicas in world.scenario.partitions:
        led = world.leads(broker_id, key) if broker_id in replicas else None
        if led is not None:
            world.epoch_starts[key, broker_id] = len(world.logs[key, broker_id])
            world.advance(broker_id, key)
            if key[0] == TRANSACTION_STATE_TOPIC:
                world.coordinators[broker_id, key[1]] = Coordinator(led.epoch, loading=True)


def _fast(world: World) -> Iterable[Subject]:
    for broker_id, broker in world.brokers.items():
        if broker.run == "down" and broker_id in world.image.brokers:
            yield (broker_id,)


def _start_unfenced(world: World, broker_id: int) -> None:
    world.image = world.image.changed(brokers=world.image.brokers - {broker_id})
    _start(world, broker_id)


def _pause(world: World, broker_id: int) -> None:
    world.brokers[broker_id] = world.brokers[broker_id]._replace(run="paused")


def _paused(world: World) -> Iterable[Subject]:
    return ((b,) for b, broker in world.brokers.items() if broker.run == "paused")


def _resume(world: World, broker_id: int) -> None:
    world.brokers[broker_id] = world.brokers[broker_id]._replace(run="up")


def _linked(world: World) -> Iterable[Subject]:
    return ((b,) for b, broker in world.brokers.items() if broker.run == "up" and broker.linked)


def _cut(world: World, broker_id: int) -> None:
    world.brokers[broker_id] = world.brokers[broker_id]._replace(linked=False)


def _unlinked(world: World) -> Iterable[Subject]:
    return ((b,) for b, broker in world.brokers.items() if not broker.linked)


def _deposable(world: World) -> Iterable[Subject]:
    return ((b,) for b, broker in world.brokers.items() if broker.run == "up" and b not in world.deposed)


def _depose(world: World, broker_id: int) -> None:
    _cut(world, broker_id)
    world.deposed[broker_id] = (world.quorum_epoch, world.image.offset + 1, world.quorum_ms + 1)
    world.quorum_epoch += 1


def _heal(world: World, broker_id: int) -> None:
    world.deposed.pop(broker_id, None)
    world.brokers[broker_id] = world.brokers[broker_id]._replace(linked=True)


BROKER = (
    Transition(
        "publish metadata",
        _publishable,
        _publish,
        "A new metadata image reaches the metadata cache: Metadata answers change, nothing else yet "
        "(BrokerMetadataPublisher.onMetadataUpdate).",
        of="at broker {0}",
    ),
    Transition(
        "apply to replicas",
        _unapplied,
        _apply_replicas,
        "The replica manager makes leaders and followers; a deposed leader takes no writes from here on "
        "(ReplicaManager.applyDelta).",
        of="at broker {0}",
    ),
    Transition(
        "elect coordinators",
        _unelected,
        _elect,
        "Last of all the coordinator hears of it: it marks what it now leads as loading and forgets what it does not. "
        "Until then a listing says NONE, without the ids of what it is about to load: the silent hole. In Kafka 3.5 "
        "every change of the partition elects it again, at the same epoch, and it sends all markers again "
        "(TransactionCoordinator.onElection, onResignation; KAFKA-15468).",
        of="at broker {0}",
    ),
    Transition("kill broker", _running, _kill, "SIGKILL: caches are lost, logs stay.", of="{0}", fault="kill"),
    Transition(
        "start broker", _startable, _start, "It comes back fenced, with the metadata of now.", of="{0}", fault="kill"
    ),
    Transition(
        "start broker before it is fenced",
        _fast,
        _start_unfenced,
        "A broker in KRaft registers again before the controller has fenced it, for example because both are one "
        "process, or because the controllers were down as well. It is fenced until it has caught up, but no leader "
        "changes: it leads what it led, at the same leader epochs. With eligible leader replicas "
        "(ReplicationControlManager.handleBrokerUncleanShutdown) they would rise "
        "(ClusterControlManager.registerBroker).",
        of="{0}",
        fault=KEPT_EPOCHS,
    ),
    Transition("pause broker", _running, _pause, "SIGSTOP: it neither answers nor acts.", of="{0}", fault="pause"),
    Transition(
        "resume broker", _paused, _resume, "SIGCONT: it goes on believing what it knew.", of="{0}", fault="pause"
    ),
    Transition(
        "cut broker off", _linked, _cut, "It answers clients but does not hear the controller.", of="{0}", fault="cut"
    ),
    Transition(
        "depose controller",
        _deposable,
        _depose,
        "The active controller is cut off together with a broker. The other controllers elect another. The deposed one "
        "does not know it, and describes itself as the leader, but nobody follows it any more "
        "(KafkaRaftClient.handleDescribeQuorumRequest).",
        of="with broker {0}",
        fault=DEPOSED_CONTROLLER,
    ),
    Transition("link broker again", _unlinked, _heal, "It hears the controller again.", of="{0}", fault="cut"),
)
