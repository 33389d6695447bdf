"""Tables of another schema version: what may be done with them.

- **A change that only adds** tables, or columns that may be null, is made in place by the next writer, as Delta's users
  expect. Rows that are there have null in new columns.
- **Any other change** is a step in UPGRADES. `txnscan maintain --upgrade` makes it, and nothing else does.
- **A release reads tables of a later version** if they say that it can: each table has the first version that can read
  it (`READABLE_SINCE` of the release that wrote it). It writes none: it would put null where it knows no column.

A version only adds, or is a step; never both. A step may be made twice, as after a crash: the version of the tables
rises when it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from types import MappingProxyType

from txnscan.config import ConfigError, printable
from txnscan.kafka.units import whole_number
from txnscan.tables.conditions import Is
from txnscan.tables.delta import READABLE_PROPERTY, VERSION_PROPERTY, Delta, of_version, tried_again
from txnscan.tables.schema import (
    CANDIDATES,
    INCIDENTS,
    OPEN_TRANSACTIONS,
    READABLE_SINCE,
    RESOLUTIONS,
    SCHEMA_VERSION,
    SWEEPS,
)


class Standing(Enum):
    """What this release may do with tables, by their version."""

    CURRENT = auto()
    """Read and write."""
    GROWS = auto()
    """Read, and write after what is missing was added."""
    UPGRADE = auto()
    """Nothing before `maintain --upgrade`."""
    LATER = auto()
    """Read."""
    UNKNOWN = auto()
    """Nothing."""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """A step to the next schema version. says: what it does, as a verb and its objects."""

    says: str
    change: Callable[[Delta], None]


def _rename_missed_commit(delta: Delta) -> None:
    of = Is("reason", "maybe_committed")
    for table in (OPEN_TRANSACTIONS, CANDIDATES, INCIDENTS, RESOLUTIONS):
        tried_again(delta, partial(delta.update, table, "reason", "missed_commit", of))


# By the version that a step begins with. Each version from the first one to READABLE_SINCE has a step.
UPGRADES: Mapping[int, Upgrade] = MappingProxyType(
    {20: Upgrade("renames the reason maybe_committed to missed_commit", _rename_missed_commit)}
)


def standing(properties: Mapping[str, str]) -> Standing:
    """What this release may do with tables of these properties."""
    version = version_of(properties)
    readable = _number(properties.get(READABLE_PROPERTY, "")) or version
    if version == SCHEMA_VERSION:
        return Standing.CURRENT
    if version > SCHEMA_VERSION:
        return Standing.LATER if readable <= SCHEMA_VERSION else Standing.UNKNOWN
    if version >= READABLE_SINCE:
        return Standing.GROWS
    return Standing.UPGRADE if version in UPGRADES else Standing.UNKNOWN


def version_of(properties: Mapping[str, str]) -> int:
    """The schema version. 0 for tables of another program."""
    return _number(properties.get(VERSION_PROPERTY, "")) or 0


def _number(text: str) -> int | None:
    number = whole_number(text)
    return number if number is not None and number >= 0 else None


def check_writable(delta: Delta) -> int:
    """The version of tables that this release may write, after it has added what is missing. Raises ConfigError."""
    return _checked(delta, (Standing.CURRENT, Standing.GROWS))


def check_readable(delta: Delta) -> None:
    """Raises ConfigError if this release cannot read the tables."""
    _checked(delta, (Standing.CURRENT, Standing.GROWS, Standing.LATER))


def _checked(delta: Delta, allowed: tuple[Standing, ...]) -> int:
    properties = delta.properties(SWEEPS)
    found, version = standing(properties), version_of(properties)
    if found in allowed:
        return version
    has = f"{printable(delta.location.text)} has tables of schema version {version}"
    remedies = {
        Standing.UPGRADE: f"run txnscan maintain --upgrade, which {' and '.join(steps_from(version))}",
        Standing.LATER: "it can read them, and a later txnscan must write them: use that one, or another location",
    }
    other = "use the version of txnscan that made them, or another location"
    raise ConfigError("--tables", f"{has}, and this txnscan writes {SCHEMA_VERSION}; {remedies.get(found, other)}")


def steps_from(version: int) -> list[str]:
    """What an upgrade of tables of this version does."""
    return [UPGRADES[one].says for one in range(version, READABLE_SINCE) if one in UPGRADES]


def upgrade(delta: Delta, say: Callable[[str], None]) -> list[str]:
    """Makes the steps to READABLE_SINCE, and returns what was done. What is missing then is added by the next writer.

    say: called with each step before it is made. Raises ConfigError.
    """
    version = _checked(delta, (Standing.CURRENT, Standing.GROWS, Standing.UPGRADE))
    done = []
    for one in range(version, READABLE_SINCE):
        step = UPGRADES[one]
        say(f"to schema version {one + 1}: {step.says}")
        step.change(delta)
        delta.set_properties(SWEEPS, of_version(one + 1))
        done.append(step.says)
    return done
