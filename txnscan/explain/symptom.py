"""The symptom: a group or a streaming query that makes no progress, a topic, a transactional id, a producer id, an
error in a log. Pure.

A line of a log often names more than its error: Java's clients begin it with their transactional id or group, and many
errors name producer id and epoch. An id in the line counts like an id in an option.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from txnscan.config import ConfigError, parse_checkpoint, utf8_text
from txnscan.explain.client_errors import CLIENT_ERRORS, ClientError, ErrorKind, recognised

_LONG_MAX = 2**63 - 1
# A name in quotes, or up to a space, a comma or a quote: "[Producer clientId=producer-a, transactionalId=a] ...",
# "Producer with transactionalId 'a' and ...", '"transactional_id": "a"'.
_NAME = r"""(?:"([^"]+)"|'([^']+)'|`([^`]+)`|([^\s,;'"`]+))"""
_QUOTED = r"""(?:"([^"]+)"|'([^']+)')"""
_TRANSACTIONAL_ID = re.compile(
    rf"""\btransactional[._ -]?id["']?(?:\s*[=:]\s*{_NAME}|\s+{_QUOTED})"""
    # A coordinator's log writes the id without a mark (`TransactionCoordinator`).
    r"""|\btransactionalId (\S+) (?:due to timeout|failed due to|has been cancelled|with producerId)\b""",
    re.IGNORECASE,
)
_GROUP = re.compile(rf"""\bgroup(?:[._ ]?id)?["']?(?:\s*[=:]\s*{_NAME}|\s+{_QUOTED})""", re.IGNORECASE)
# What surrounds a name without quotes, and is closed behind it.
_PAIRS = {")": "(", "]": "[", "}": "{", ">": "<"}
# The last one is what a leader answers: "Epoch of producer 5 at offset 9 in t-0 is 3, which is smaller than ...".
_PRODUCER_ID = re.compile(
    r"\bproducer\s?id\s*(?:set to|is|[=:])?\s*(\d{1,18})\b|\bepoch of producer (\d{1,18})\b", re.IGNORECASE
)
# What the log cleaner of a broker writes (`LogCleaner.CleanerThread`).
_UNCLEANABLE = re.compile(r"Marking its partition \((\S+)-(\d{1,9})\) as uncleanable")
_EPOCH = re.compile(
    r"(?<!coordinator )(?<!leader )(?<!seen )\bepoch\s*(?:is|[=:])?\s*(\d{1,5})\b|\bis (\d{1,5}), which is smaller",
    re.IGNORECASE,
)


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
    unrecognised: whether there is a text from a log, without an error that txnscan knows.
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

    @property
    def is_reader(self) -> bool:
        """Whether it is a reader with offsets: a group, or a streaming query by its checkpoint."""
        return self.kind in (SymptomKind.GROUP, SymptomKind.QUERY)

    @property
    def needs_no_broker(self) -> bool:
        """Whether the text of an error has the answer alone."""
        return self.error is not None and self.error.kind is ErrorKind.ITSELF


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
    if len(given) + len(ids) > 1 or not (given or ids or error is not None):
        every = "--group, --spark-checkpoint, --topic, --transactional-id, --producer-id and --error"
        raise ConfigError("--group", f"give one of {every}")
    if error is not None and given:
        raise ConfigError(
            "--error", f"stands alone, or beside --transactional-id or --producer-id; leave --{given[0]} out"
        )
    if partition is not None and topic is None:
        raise ConfigError("--partition", "needs --topic to say of which topic")
    for option, name in (("--group", group), ("--topic", topic), ("--transactional-id", transactional_id)):
        if name is not None and not utf8_text(option, name):
            raise ConfigError(option, "is empty; give a name")
    if producer_id is not None and not 0 <= producer_id <= _LONG_MAX:
        raise ConfigError("--producer-id", f"{producer_id} is no producer id")
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
    error = recognised(text)
    named = _named_in(text)
    if asked.kind is SymptomKind.ERROR:
        if named.kind is SymptomKind.ERROR and error is None:
            known = ", ".join(one.name for one in CLIENT_ERRORS)
            raise ConfigError("--error", f"no error that txnscan knows is in this text; it knows {known}")
        return replace(named, error=error, unrecognised=error is None)
    same = asked.producer_id is None or named.producer_id in (None, asked.producer_id)
    epoch = named.producer_epoch if same else None
    return replace(asked, error=error, producer_epoch=epoch, unrecognised=error is None)


def _named_in(text: str) -> Symptom:
    if (uncleanable := _UNCLEANABLE.search(text)) is not None:
        return Symptom(SymptomKind.TOPIC, topic=uncleanable[1], partition=int(uncleanable[2]))
    transactional_id, group = _name(_TRANSACTIONAL_ID, text), _name(_GROUP, text)
    producer_id, epoch = _first(_PRODUCER_ID, text), _first(_EPOCH, text)
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
    """The first name in the text. Marks behind a name without quotes are none of it."""
    for match in pattern.finditer(text):
        found = next(one for one in match.groups() if one is not None)
        quoted = text[match.end() - 1] in "\"'`"
        name = found if quoted else _bare(found)
        if name and (quoted or name.lower() not in _NO_NAMES):
            return name
    return None


# How clients write that there is no name.
_NO_NAMES = frozenset({"null", "none", "nil"})


def _bare(name: str) -> str:
    """The name without the brackets and the full stop behind it. A bracket that it opens itself belongs to it."""
    while name:
        last = name[-1]
        opened = _PAIRS.get(last)
        if last not in ".:" and (opened is None or name.count(opened) >= name.count(last)):
            break
        name = name[:-1]
    return name
