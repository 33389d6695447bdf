"""The one rule about names that are not there: of topics, transactional ids and groups.

If every broker answers with current metadata, and the principal may see the name, there is no such name: a usage error
with exit status 2, which suggests a name that is alike. Otherwise it is not observed whether there is one: exit status
4. An absence that was not observed is never reported as an absence.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from txnscan.config import ConfigError, printable
from txnscan.coordinators.cluster import Cluster
from txnscan.errors import ExitStatus, TxnscanError
from txnscan.kafka.errors import ErrorCode, RequestFailed
from txnscan.kafka.failure import Failure
from txnscan.kafka.protocol.list_transactions import ListingFilter, listing
from txnscan.kafka.security.acls import needing
from txnscan.kafka.security.needs import DESCRIBE_TOPICS
from txnscan.waiting.groups import names_of_groups

_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED.name
# Names among which a similar one is searched. The search takes a tenth of a second.
_NAMES_MAX = 20_000
_LIKE = 0.75


class NotObserved(TxnscanError):
    """It was not observed whether something that the user named exists."""

    exit_status = ExitStatus.INCOMPLETE


@dataclass(frozen=True, slots=True)
class Absent:
    """A name that is not there. option: which had it. what: its kind, for users. unseen: why its absence was not
    observed; None if there is no such name. like: a similar name.
    """

    option: str
    what: str
    name: str
    unseen: Failure | None
    like: str | None = None

    @property
    def no_such_name(self) -> str:
        """Says that there is none, with the similar name."""
        meant = "" if self.like is None else f"; did you mean '{printable(self.like)}'?"
        return f"there is no {self.what} '{printable(self.name)}'{meant}"

    def error(self, format_failure: Callable[[Failure], str]) -> TxnscanError:
        """The error for users, by the rule."""
        if self.unseen is None:
            return ConfigError(self.option, self.no_such_name)
        shown = f"{self.option}: it is not observed whether there is a {self.what} '{printable(self.name)}'"
        return NotObserved(f"{shown}: {format_failure(self.unseen)}")


def absent_topic(cluster: Cluster, option: str, name: str) -> Absent:
    """About a topic that Metadata did not show. Raises ClusterUnreachable."""
    view = cluster.newest([name])
    # Brokers say that there is no such topic only to principals that may describe it.
    code = dict(view.topic_errors).get(name, "")
    unseen = needing(Failure(code, code), DESCRIBE_TOPICS.on(name)) if code == _REFUSED else _behind(cluster)
    return _absent(option, "topic", name, unseen, lambda: (topic.name for topic in cluster.newest().topics))


def absent_id(cluster: Cluster, name: str) -> Absent:
    """About a transactional id that its coordinator does not know. A coordinator says that only to principals that may
    describe the id. Raises ClusterUnreachable.
    """
    return _absent("--transactional-id", "transactional id", name, _behind(cluster), lambda: _ids(cluster))


def absent_group(cluster: Cluster, name: str) -> Absent:
    """About a group without offsets and members at its coordinator, which this principal may describe. Raises
    ClusterUnreachable.
    """
    names, failed = names_of_groups(cluster.send, cluster.broker_ids)
    return _absent("--group", "group", name, failed or _behind(cluster), lambda: names)


def _absent(option: str, what: str, name: str, unseen: Failure | None, known: Callable[[], Iterable[str]]) -> Absent:
    return Absent(option, what, name, unseen, None if unseen is not None else like(name, known()))


def like(name: str, known: Iterable[str]) -> str | None:
    """The name among these that is most similar to this one, if one is similar."""
    near = (one for one in known if abs(len(one) - len(name)) <= max(3, len(name) // 4))
    found = difflib.get_close_matches(name, list(islice(near, _NAMES_MAX)), n=1, cutoff=_LIKE)
    return found[0] if found else None


def _behind(cluster: Cluster) -> Failure | None:
    """Why a broker may know more than was seen."""
    return next((one.failure for one in cluster.behind()), None)


def _ids(cluster: Cluster) -> Iterator[str]:
    """The ids that brokers list, as far as they answer."""
    for broker_id in cluster.broker_ids:
        try:
            yield from (name for name, _ in listing(cluster.send, broker_id, ListingFilter()))
        except RequestFailed:
            continue
