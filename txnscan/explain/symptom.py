"""The symptom: a group or a streaming query that makes no progress, a topic, a transactional id, a producer id, an
error in a log. Pure.

A line of a log often names more than its error: Java's clients begin it with their transactional id or group, and many
errors name producer id and epoch. An id in the line counts like an id in an option.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from txnscan.config import ConfigError, check_number, parse_checkpoint, utf8_text
from txnscan.explain.client_errors import ClientError, ErrorKind
from txnscan.explain.known_errors import recogniser
from txnscan.kafka.units import INT_MAX, LONG_MAX

# Of a string in the protocol.
_NAME_LENGTH_MAX = 2**15 - 1
# A name in quotes, or up to a space, a comma or a quote: "[Producer clientId=producer-a, transactionalId=a] ...",
# "Producer with transactionalId 'a' and ...", '"transactional_id": "a"'.
_QUOTED = r"""(?:"([^"\n]+)"|'([^'\n]+)'|`([^`\n]+)`)"""
_NAME = rf"""(?:{_QUOTED}|([^\s,;'"`]+))"""
# Without a mark around it, a name is told from a word by a digit or a sign inside.
_MARKED = r"(?=[^\s,;]*[A-Za-z0-9][0-9._/:-][A-Za-z0-9(\[]|[^\s,;]*\d)([^\s,;'\"`]+)"
_X = r"(\S{1,999}?)"
_TRANSACTIONAL_ID = re.compile(
    "|".join(
        (
            r"""(?:\btransactional[._ -]?id|\btxn[._-]?id|\bTransaction\.ID)["']?"""
            rf"""(?:\s*[=:]\s*{_NAME}|\s+{_QUOTED}|\s+\[{_X}\])""",
            # sarama: "txnmgr/endtxn [a] retrying after 100ms".
            rf"\btxnmgr(?:/[\w-]+)? \[{_X}\](?=\s)",
            # The broker's lines write the id without a mark (`TransactionCoordinator`, `TransactionStateManager`,
            # `TransactionMarkerChannelManager`).
            rf"\btransactional ?Id {_X}:? (?:due to|failed due|has been|with producerId|append|under|Invalid)\b",
            rf"\b(?:for|Sending|Updating|Appending) {_X}'s (?:InitProducerId|AddPart|EndTransaction|transaction|new)",
            rf"\btransaction markers for {_X}, these partitions",
            rf"\bsending txn marker for {_X}(?=\s|$)",
            rf"\bno longer the coordinator for (?!transactionalId){_X}(?:;|\s)",
            rf"\btransaction partition that contains {_X} wh",
            rf"\btransition for producer {_X} to the transaction log",
            rf"\bcoordinator epoch for {_X} has changed",
            rf"\btransaction metadata for {_X} (?:with|returns)",
            rf"IdAndProducerIdEpoch\((?:transactionalId=)?{_X},",
            rf"\btransactional[._ -]?id {_MARKED}",
        )
    ),
    re.IGNORECASE,
)
_GROUP = re.compile(
    rf"""\bgroup(?:[._ ]?id)?["']?(?:\s*[=:]\s*{_NAME}|\s+{_QUOTED})"""
    rf"""|\bgroup (\S{{1,999}}) to transaction\b|\bgroup {_MARKED}""",
    re.IGNORECASE,
)
# What surrounds a name without quotes, and is closed behind it.
_PAIRS = {")": "(", "]": "[", "}": "{", ">": "<"}
# The last ones are what a leader answers, "Epoch of producer 5 at offset 9 in t-0 is 3, which is smaller than ...", and
# how librdkafka writes it.
_PRODUCER_ID = re.compile(
    r"""\bproducer[\s_.-]?id["']?\s*(?:set to|is|[=:])?\s*["']?(\d{1,19})\b"""
    r"""|\b(?:of|for|from) producer (\d{1,19})\b|\bPID\{Id:(\d{1,19}),"""
    # franz-go.
    r"""|\bproducer ID failed[^;]{0,200}; id: (\d{1,19})""",
    re.IGNORECASE,
)
# What the log cleaner of a broker writes (`LogCleaner.CleanerThread`).
_UNCLEANABLE = re.compile(
    r"Marking its partition \((\S{1,999})-(\d{1,9})\) as uncleanable"
    r"|Failed to clean up log for (\S{1,999})-(\d{1,9}) in dir|messages in segment (\S{1,999})-(\d{1,9})/"
    r"|cleaning stats for partition (\S{1,999})-(\d{1,9})\b"
)
_EPOCH = re.compile(
    r"""(?<!coordinator )(?<!leader )(?<!seen )(?:\b|\bproducer_?)epoch["']?\s*(?:is|[=:])?\s*["']?(\d{1,5})\b"""
    r"""|\bis (\d{1,5}), which is smaller""",
    re.IGNORECASE,
)

# Errors that a broker is asked about only if the text has an id or a partition.
_ALONE = (ErrorKind.FENCED, ErrorKind.EXPIRED, ErrorKind.CLEANER, ErrorKind.OTHER)


_OF_LOST_IDS = ("INVALID_PRODUCER_ID_MAPPING", "TRANSACTIONAL_ID_NOT_FOUND")


class SymptomKind(StrEnum):
    """The kinds of symptoms."""

    GROUP = "group"
    QUERY = "query"
    TOPIC = "topic"
    TRANSACTIONAL_ID = "transactional_id"
    PRODUCER_ID = "producer_id"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Symptom:
    """A symptom. kind: the field that it is about. error: recognised in the text from a log, if any. producer_epoch: of
    the producer that logged the error, if its text has it. checkpoint: the path of the checkpoint of a streaming query.
    unrecognised: whether there is a text from a log, without an error that txnscan knows. If Kafka's error does
    not concern transactions, `error` has only the name. from_text: whether the names are those in the text.
    """

    kind: SymptomKind
    group: str | None = None
    topic: str | None = None
    partition: int | None = None
    transactional_id: str | None = None
    producer_id: int | None = None
    error: ClientError | None = None
    producer_epoch: int | None = None
    checkpoint: str | None = None
    unrecognised: bool = False
    from_text: bool = False

    @property
    def is_reader(self) -> bool:
        """Whether it is a reader with offsets: a group, or a streaming query by its checkpoint."""
        return self.kind in (SymptomKind.GROUP, SymptomKind.QUERY)

    @property
    def needs_no_broker(self) -> bool:
        """Whether the text of an error has the answer alone: it shows its cause, or names nothing that can be asked."""
        if self.error is not None and self.error.kind is ErrorKind.ITSELF:
            return True
        return self.kind is SymptomKind.ERROR and (self.error is None or self.error.kind in _ALONE)

    @property
    def brokers_know_more(self) -> bool:
        """Whether brokers can say more than the text: that the id expired, and when."""
        is_lost = self.error is not None and self.error.name in _OF_LOST_IDS
        return is_lost and self.kind is SymptomKind.TRANSACTIONAL_ID

    @property
    def id_may_be_misspelt(self) -> bool:
        """Whether a transactional id that is not there was probably mistyped: no log has it, and the error is not that
        it is not there.
        """
        return not self.from_text and not self.brokers_know_more


def symptom(
    *,
    group: str | None = None,
    topic: str | None = None,
    partition: int | None = None,
    transactional_id: str | None = None,
    producer_id: int | None = None,
    error: str | None = None,
    spark_checkpoint: str | None = None,
) -> Symptom:
    """The symptom in these options. Raises ConfigError if they are not one symptom."""
    readers = (("group", group), ("topic", topic), ("spark-checkpoint", spark_checkpoint))
    given = [name for name, one in readers if one is not None]
    ids = [
        name for name, one in (("transactional-id", transactional_id), ("producer-id", producer_id)) if one is not None
    ]
    if partition is not None and topic is None:
        raise ConfigError("--partition", "needs --topic to say of which topic")
    if len(given) + len(ids) > 1:
        named = " and ".join(f"--{name}" for name in (*given, *ids))
        raise ConfigError(f"--{(*given, *ids)[-1]}", f"give only one of {named}")
    if not (given or ids or error is not None):
        every = "--group, --spark-checkpoint, --topic, --transactional-id, --producer-id and --error"
        raise ConfigError("--group", f"give one of {every}")
    if error is not None and given:
        raise ConfigError(
            "--error", f"stands alone, or beside --transactional-id or --producer-id; leave --{given[0]} out"
        )
    for option, name in (("--group", group), ("--topic", topic), ("--transactional-id", transactional_id)):
        if name is not None and not utf8_text(option, name):
            raise ConfigError(option, "is empty; give a name")
    if partition is not None:
        check_number("--partition", partition, INT_MAX)
    if producer_id is not None:
        check_number("--producer-id", producer_id, LONG_MAX)
    if spark_checkpoint is not None:
        return Symptom(SymptomKind.QUERY, checkpoint=parse_checkpoint(spark_checkpoint))
    if group is not None:
        return Symptom(SymptomKind.GROUP, group=group)
    if topic is not None:
        return Symptom(SymptomKind.TOPIC, topic=topic, partition=partition)
    found = _of_ids(transactional_id, producer_id)
    return found if error is None else _with_error(found, error)


def _of_ids(transactional_id: str | None, producer_id: int | None) -> Symptom:
    if transactional_id is not None:
        return Symptom(SymptomKind.TRANSACTIONAL_ID, transactional_id=transactional_id)
    kind = SymptomKind.PRODUCER_ID if producer_id is not None else SymptomKind.ERROR
    return Symptom(kind, producer_id=producer_id)


def _with_error(asked: Symptom, text: str) -> Symptom:
    """The symptom with the ids in the text of a log. An id that was given counts more."""
    known = recogniser()
    error = known.find(text)
    unrecognised = error is None or error.kind is ErrorKind.OTHER
    named = _named_in(text) if error is None else _named_near(*known.split(text, error))
    if asked.kind is SymptomKind.ERROR:
        return replace(named, error=error, unrecognised=unrecognised, from_text=True)
    same = asked.producer_id is None or named.producer_id in (None, asked.producer_id)
    epoch = named.producer_epoch if same else None
    return replace(asked, error=error, producer_epoch=epoch, unrecognised=unrecognised)


def _named_near(before: str, line: str, after: str) -> Symptom:
    """The names in the line of an error; or else in the nearest line before it, or behind it."""
    nearest_first = (*(line, *reversed(before.splitlines()[-_LINES_MAX:])), *after.splitlines()[:_LINES_MAX])
    found = (_named_in(one) for one in nearest_first)
    return next((one for one in found if one.kind is not SymptomKind.ERROR), Symptom(SymptomKind.ERROR))


def _named_in(text: str) -> Symptom:
    # The text of a log may be a string of JSON itself.
    text = text.replace('\\"', '"')
    if (uncleanable := _UNCLEANABLE.search(text)) is not None:
        topic, partition = (one for one in uncleanable.groups() if one is not None)
        return Symptom(SymptomKind.TOPIC, topic=topic, partition=int(partition))
    transactional_id, group = _name(_TRANSACTIONAL_ID, text), _name(_GROUP, text)
    producer_id, epoch = _first(_PRODUCER_ID, text), _first(_EPOCH, text)
    if producer_id is not None and int(producer_id) > LONG_MAX:
        producer_id = None
    if transactional_id is not None:
        kind = SymptomKind.TRANSACTIONAL_ID
    elif producer_id is not None:
        kind = SymptomKind.PRODUCER_ID
    else:
        kind = SymptomKind.GROUP if group is not None else SymptomKind.ERROR
    return Symptom(
        kind,
        group=group if kind is SymptomKind.GROUP else None,
        transactional_id=transactional_id,
        producer_id=int(producer_id) if producer_id is not None else None,
        producer_epoch=int(epoch) if epoch is not None and producer_id is not None else None,
    )


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return None if match is None else next(one for one in match.groups() if one is not None)


def _name(pattern: re.Pattern[str], text: str) -> str | None:
    """The first name in the text. Marks behind a name without quotes are none of it. Raises ConfigError."""
    for match in pattern.finditer(text):
        found = next(one for one in match.groups() if one is not None)
        quoted = text[match.end() - 1] in "\"'`"
        name = found if quoted or len(found) > _NAME_LENGTH_MAX else _bare(found)
        if 0 < len(name) <= _NAME_LENGTH_MAX and (quoted or name.lower() not in _NO_NAMES):
            return utf8_text("--error", name)
    return None


# A stack trace stands between an error and the line with its id.
_LINES_MAX = 200
# How clients write that there is no name.
_NO_NAMES = frozenset({"null", "none", "nil"})


def _bare(name: str) -> str:
    """The name without the brackets and the full stop behind it. A bracket that it opens itself belongs to it."""
    surplus = {closed: name.count(closed) - name.count(opened) for closed, opened in _PAIRS.items()}
    end = len(name)
    while end and (name[end - 1] in ".:" or surplus.get(name[end - 1], 0) > 0):
        end -= 1
        if name[end] in surplus:
            surplus[name[end]] -= 1
    return name[:end]
