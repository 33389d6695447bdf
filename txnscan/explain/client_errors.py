"""The errors in a text from a log: how each is recognised. `known_errors.py` has their meaning. Pure.

An error is recognised by a word or by a phrase:
- A word is a name of the error: of the protocol, of an exception, of librdkafka. It counts only as a whole.
- A phrase is a part of a message, in lower case, with single spaces. Between the two parts of a `Near` phrase stand at
  most 400 characters, and each part may come first.

The names and messages of Kafka's own errors are in `kafka_errors.json`, as five clients print them
(`tests/golden/errors`). If a text has several errors, the first of the table counts: a fenced producer often logs a
second error after it. The time to search is in proportion to the length of the text, which may be a whole log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

_NEAR_CHARACTERS = 400
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# sarama has no text for newer errors: "Unknown error, how did this happen? Error code = 90".
_SARAMA_CODE = re.compile(r"how did this happen\? error code = (\d{1,4})\b")
_LIBRDKAFKA = "RD_KAFKA_RESP_ERR_"
# Errors whose names other software has too. They count in a text that shows that it is about Kafka.
_COMMON = (
    *("INVALID_REQUEST", "RESOURCE_NOT_FOUND", "DUPLICATE_RESOURCE", "INVALID_CONFIG", "POLICY_VIOLATION"),
    *("NETWORK_EXCEPTION", "SNAPSHOT_NOT_FOUND", "INVALID_TIMESTAMP", "UNSUPPORTED_VERSION"),
)
_OF_KAFKA = ("kafka", "broker", "producer", "consumer", "transactional", "[error ", "topic")


class ErrorKind(StrEnum):
    """The subject of an error. It decides which questions are asked."""

    FENCED = "fenced"
    BUSY = "busy"
    OFFSETS = "offsets"
    SETTING = "setting"
    EXPIRED = "expired"
    CLEANER = "cleaner"
    # The text alone has the answer: no broker is asked.
    ITSELF = "itself"
    # Kafka's, and not of a transaction.
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Defect:
    """A defect of Kafka that shows this error. source: its certainty, in words."""

    key: str
    what: str
    source: str

    def __str__(self) -> str:
        return f"{self.key}, {self.what}; {self.source}"


@dataclass(frozen=True, slots=True)
class Near:
    """A phrase of two parts. Any of `some` stands near any of `other`."""

    some: tuple[str, ...]
    other: tuple[str, ...]

    def at(self, text: str) -> int:
        """The position of its first part in this text, which is in lower case. -1 if it is not there."""
        if not any(part in text for part in self.some) or not any(part in text for part in self.other):
            return -1
        places = sorted(
            [(at, True) for at in _places(self.some, text)] + [(at, False) for at in _places(self.other, text)]
        )
        near = (a[0] for a, b in pairwise(places) if a[1] is not b[1] and b[0] - a[0] <= _NEAR_CHARACTERS)
        return next(near, -1)


@dataclass(frozen=True, slots=True)
class ClientError:
    """An error, by the protocol's name, or by a name of our own for a line that has none. meaning: a sentence. remedy:
    what to do, only for an error that needs no broker. phrases: show it, beside the texts of Kafka's error of this
    name. also: names of Kafka's errors with the same meaning.
    """

    name: str
    kind: ErrorKind
    meaning: str
    remedy: str = ""
    phrases: tuple[str | Near, ...] = ()
    also: tuple[str, ...] = ()
    known: tuple[Defect, ...] = ()


@dataclass(frozen=True, slots=True)
class KafkaError:
    """An error of Kafka or of a client: the names and messages by which clients print it. words: whole words."""

    name: str
    code: int
    message: str
    words: tuple[str, ...]
    texts: tuple[str, ...]


class Recogniser:
    """Finds the errors of a table in texts. Errors of Kafka that are not in the table are found last."""

    def __init__(self, table: Sequence[ClientError], kafka: Sequence[KafkaError]) -> None:
        of_name = {name: one for one in table for name in (one.name, *one.also)}
        for one in kafka:
            of_name.setdefault(one.name, ClientError(one.name, ErrorKind.OTHER, one.message))
        self.errors = tuple(dict.fromkeys(of_name.values()))
        self._rank = {one.name: at for at, one in enumerate(self.errors)}
        self._codes = {str(one.code): of_name[one.name] for one in kafka}
        self._words = {one.name: one for one in table}
        self._words |= {word: of_name[one.name] for one in kafka for word in (*one.words, *forms(one.name))}
        self._common = {word for one in kafka if one.name in _COMMON for word in (*one.words, *forms(one.name))}
        phrases = [(phrase, one) for one in table for phrase in one.phrases if isinstance(phrase, str)]
        phrases += [(text, of_name[one.name]) for one in kafka for text in one.texts]
        self._phrases = [(phrase, frozenset(_WORD.findall(phrase)[1:-1]), one) for phrase, one in phrases]
        self._near = [(phrase, one) for one in table for phrase in one.phrases if isinstance(phrase, Near)]

    def find(self, text: str) -> ClientError | None:
        """The error in this text that comes first in the table. None without a known error."""
        return min(self._all(text), key=lambda one: self._rank[one.name], default=None)

    def split(self, text: str, error: ClientError) -> tuple[str, str, str]:
        """The text before the first line that shows this error, this line, and the text behind it. If no line shows it
        alone, the line is the whole text.
        """
        words = [word for word, one in self._words.items() if one is error]
        phrases = [phrase for phrase, _, one in self._phrases if one is error]
        lower = text.lower()
        places = [*(text.find(word) for word in words), *(lower.find(phrase) for phrase in phrases)]
        places += [near.at(lower) for near, one in self._near if one is error]
        first = min((at for at in places if at >= 0), default=-1)
        if first < 0 or len(lower) != len(text):
            return "", text, ""
        start, end = text.rfind("\n", 0, first) + 1, text.find("\n", first)
        return text[:start], text[start : end if end >= 0 else None], text[end:] if end >= 0 else ""

    def _all(self, text: str) -> Iterator[ClientError]:
        words = {word.removeprefix(_LIBRDKAFKA) for word in _WORD.findall(text)}
        shown = plain(text)
        if not any(mark in shown for mark in _OF_KAFKA):
            words -= {word for word in self._common if word != text.strip()}
        yield from (self._words[word] for word in words if word in self._words)
        yield from (one for phrase, one in self._near if phrase.at(shown) >= 0)
        yield from (self._codes[code] for code in _SARAMA_CODE.findall(shown) if code in self._codes)
        # Most phrases have a word that the text has not: a search in a long text is saved.
        lower = set(_WORD.findall(shown))
        found = [(phrase, one) for phrase, needed, one in self._phrases if needed <= lower and phrase in shown]
        # A phrase inside a longer one of the same text is a part of it: "timed out" in "timed out in queue".
        for phrase, one in found:
            rest = shown
            for longer in (other for other, _ in found if phrase != other and phrase in other):
                rest = rest.replace(longer, "")
            if phrase in rest:
                yield one


def plain(text: str) -> str:
    """The text in lower case, with single spaces."""
    return " ".join(text.lower().split())


def forms(name: str) -> tuple[str, ...]:
    """The names that clients in other languages derive from a name of the protocol: ProducerFenced, ErrProducerFenced.
    A name of one part is a common word. Its only form is that of .NET for librdkafka's own errors: Local_TimedOut.
    """
    parts = name.strip("_").split("_")
    camel = "".join(part.capitalize() for part in parts)
    if name.startswith("_"):
        return (f"Local_{camel}",)
    return () if len(parts) == 1 else (camel, f"{camel}Exception", f"{camel}Error", f"Err{camel}")


def _places(parts: tuple[str, ...], text: str) -> Iterator[int]:
    for part in parts:
        at = text.find(part)
        while at >= 0:
            yield at
            at = text.find(part, at + 1)
