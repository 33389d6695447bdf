"""Refuses tables whose metadata makes a reader or a writer run something. Pure; nothing here is evaluated.

A Delta table carries expressions that Spark evaluates: generated columns, defaults, identities and invariants in the
metadata of fields, constraints in the properties. `reflect('java.lang.System', 'load', FILE)` is such an expression.
Other parts name code: a class (`udt` types, options of the format), a commit coordinator, a conversion to another
format. A writer of the tables must not choose what runs in the process that sweeps.

A table is refused for what it *uses*. The name of a feature says little: an upgrade of the protocol lists features
that no column uses. Features of an unknown meaning are refused.

Source: Delta's PROTOCOL.md; `GeneratedColumn`, `Invariants`, `Constraints` and `Action` of Delta 4.4;
`DataType.fromJson` of Spark and of PySpark, which loads the class of a `udt` type, even a pickled one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from txnscan.config import ConfigError, printable
from txnscan.tables.schema import Table
from txnscan.unique_json import unique_json

# These evaluate nothing by themselves: some change how files are written or read, the others only allow expressions,
# which are looked for.
FEATURES = frozenset(
    {
        "allowColumnDefaults",
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "checkpointProtection",
        "clustering",
        "columnMapping",
        "deletionVectors",
        "domainMetadata",
        "generatedColumns",
        "icebergCompatV1",
        "icebergCompatV2",
        "icebergCompatV3",
        "identityColumns",
        "inCommitTimestamp",
        "invariants",
        "materializePartitionColumns",
        "rowTracking",
        "timestampNtz",
        "typeWidening",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantShredding",
        "variantType",
    }
)
_PREVIEW = re.compile(r"-(?:preview|dev)$")
_CONSTRAINT = "delta.constraints."
_FEATURE = "delta.feature."
# Properties that name code or another service, by their beginning.
_NAMES_CODE = (
    *("delta.coordinatedcommits.", "delta.universalformat.", "delta.catalogmanaged", "option."),
    # Another table in place of this one. Delta looks at the property, and not whether the feature is there.
    "delta.redirect",
)
# Keys of a field's metadata that evaluate nothing. Keys of other products are free, if nothing in them resembles an
# expression.
_HARMLESS = re.compile(r"delta\.(?:columnMapping\.(?:id|physicalName|nested\.ids)|typeChanges|rowTracking\.\w+)")
_EXPRESSION = re.compile(r"expression|invariant|default|identity|generation", re.IGNORECASE)
# A type that is no struct, array or map.
_PLAIN_TYPE = re.compile(r"[a-z_]+(?: ?\([0-9, ]*\))?(?: [a-z ]+)?")
# Spark pads each value of such a type to its length when it reads it, and writes no value that is longer. Such a type
# is in the metadata of a column. The longest of Hive has 255 characters.
_FIXED_LENGTH = re.compile(r"\bchar(?:acter)?\s*\(\s*([0-9]+)", re.IGNORECASE)
_LIMITED_LENGTH = re.compile(r"\b(?:var)?char", re.IGNORECASE)
_FIXED_LENGTH_MAX = 255
_TYPE_KEY = "__char_varchar_type_string"
_NESTED = {"struct": ("fields",), "array": ("elementType",), "map": ("keyType", "valueType")}
_SHOWN_MAX = 100


REMEDY = "restore it from a backup, or name another location"


class TableRefused(ConfigError):
    """A table that must not be used. `str()` is one sentence with the reason and the remedy."""

    def __init__(self, table: Table, why: str) -> None:
        super().__init__("--tables", f"the table {table.name} is refused: {why}")


class UnreadableLog(ValueError):
    """A part of a Delta log that is no JSON, or not what Delta writes."""


def parsed(text: str) -> Any:
    """JSON in which no key is given twice: programs differ about which of the two counts. Raises UnreadableLog."""
    try:
        return unique_json(text)
    except ValueError:
        raise UnreadableLog("is no JSON, or gives a key twice") from None


def named(action: Mapping[str, Any], key: str) -> Any:
    """The value of a key. Raises UnreadableLog if another key differs from it only by upper and lower case, which some
    readers ignore.
    """
    folded = key.casefold()
    like = [name for name in action if name.casefold() == folded]
    if like not in ([], [key]):
        raise UnreadableLog(f"has another spelling of {key}")
    return action.get(key)


def why_metadata_refused(table: Table, metadata: Mapping[str, Any]) -> str | None:
    """Why a table with this metadata must not be used, in a clause. None if nothing would be run.

    metadata: the action `metaData` of Delta's log. The table is one of txnscan's.
    """
    try:
        reasons = (
            *_of_format(named(metadata, "format")),
            *of_properties(table, _once(named(metadata, "configuration") or {})),
            *of_schema(table, parsed(str(named(metadata, "schemaString")))),
        )
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return "its metadata is not the metadata that Delta writes"
    return next(iter(reasons), None)


def check(table: Table, metadata: Mapping[str, Any], protocol: Mapping[str, Any]) -> None:
    """Raises TableRefused if a table with this metadata and protocol must not be used."""
    why = why_metadata_refused(table, metadata) or why_protocol_refused(protocol)
    if why is not None:
        raise TableRefused(table, f"{why}; {REMEDY}")


def why_protocol_refused(protocol: Mapping[str, Any]) -> str | None:
    """Why a table with this protocol must not be used, in a clause. protocol: the action of Delta's log."""
    try:
        listed = [*(named(protocol, "readerFeatures") or ()), *(named(protocol, "writerFeatures") or ())]
    except (AttributeError, TypeError, ValueError):
        return "its protocol is not the protocol that Delta writes"
    unknown = (str(feature) for feature in listed if _PREVIEW.sub("", str(feature)) not in FEATURES)
    return next((f"it has the feature {_shown(one)}, which is not known to run nothing" for one in unknown), None)


def _of_format(format: Mapping[str, Any] | None) -> Iterator[str]:
    if format is not None and (named(format, "provider") != "parquet" or named(format, "options")):
        yield "its metadata has a format other than Parquet, or options of the format, which may name a class"


def _once(properties: Mapping[str, Any] | Collection[tuple[str, Any]]) -> dict[str, Any]:
    """The properties, which a checkpoint has as pairs. Raises UnreadableLog if one is there twice."""
    found = dict(properties)
    if len(found) != len(properties):
        raise UnreadableLog("has a property twice")
    return found


def of_properties(table: Table, properties: Mapping[str, Any]) -> Iterator[str]:
    """Why these properties may run something."""
    ours = {condition for _, condition in table.checks}
    for name, value in properties.items():
        lower = name.casefold()
        if lower.startswith(_CONSTRAINT):
            if value not in ours:
                yield f"it has the constraint {_shown(name[len(_CONSTRAINT) :])}, which is none of txnscan's"
        elif lower.startswith(_FEATURE):
            if why := why_protocol_refused({"writerFeatures": [name[len(_FEATURE) :]]}):
                yield why
        elif lower.startswith(_NAMES_CODE):
            yield f"it has the property {_shown(name)}, which names code or another service"


def of_schema(table: Table, schema: Mapping[str, Any]) -> Iterator[str]:
    """Why a column of this schema, in Spark's JSON, may run something, or refuse a row of txnscan's. Raises as indexing
    does for another JSON.
    """
    yield from _of_type(schema, "")
    own = {column.name for column in table.columns}
    for field in named(schema, "fields"):
        # Spark ignores upper and lower case.
        if field["name"].casefold() in own and any(map(_LIMITED_LENGTH.search, _type_texts(field))):
            yield f"the column {_shown(field['name'])} has values of a limited length"
        if field["name"] not in own and named(field, "nullable") is not True:
            yield f"the column {_shown(field['name'])} is none of txnscan's and allows no nulls"


def _of_type(type_: Any, column: str) -> Iterator[str]:
    if isinstance(type_, str):
        if not _PLAIN_TYPE.fullmatch(type_):
            yield f"the type of {_column(column)} is unknown"
        yield from _of_length(type_, column)
        return
    kind = named(type_, "type")
    parts = _NESTED.get(kind)
    if parts is None:
        yield f"the type of {_column(column)} is unknown"
        return
    if kind != "struct":
        for part in parts:
            yield from _of_type(named(type_, part), column)
        return
    for field in named(type_, "fields"):
        below = f"{column}.{field['name']}" if column else str(field["name"])
        for key in _keys(named(field, "metadata") or {}):
            if not _is_harmless(key):
                yield f"the metadata of {_column(below)} has {_shown(key)}, which may be evaluated"
        for text in _type_texts(field):
            yield from _of_length(text, below)
        yield from _of_type(named(field, "type"), below)


def _type_texts(field: Mapping[str, Any]) -> Iterator[str]:
    """The types of a field as texts: its own, and those in its metadata."""
    if isinstance(type_ := named(field, "type"), str):
        yield type_
    metadata = named(field, "metadata") or {}
    yield from (str(value) for key, value in metadata.items() if key.casefold() == _TYPE_KEY)


def _of_length(type_: str, column: str) -> Iterator[str]:
    if any(len(length) > 3 or int(length) > _FIXED_LENGTH_MAX for length in _FIXED_LENGTH.findall(type_)):
        yield f"values of {_column(column)} are padded to more than {_FIXED_LENGTH_MAX} characters"


def _keys(metadata: Mapping[str, Any]) -> Iterator[str]:
    """The keys, and those of what is in them. The keys of the nested ids of a column mapping are names of columns."""
    for key, value in metadata.items():
        yield key
        if key != "delta.columnMapping.nested.ids":
            yield from _keys_in(value)


def _keys_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from _keys(value)
    elif isinstance(value, list):
        for one in value:
            yield from _keys_in(one)


def _is_harmless(key: str) -> bool:
    if key.casefold().startswith("delta."):
        return _HARMLESS.fullmatch(key) is not None
    return _EXPRESSION.search(key) is None


def has_class(value: Any) -> bool:
    """Whether JSON has a type of Spark that names a class."""
    if isinstance(value, dict):
        return value.get("type") == "udt" or any(map(has_class, value.values()))
    return isinstance(value, list) and any(map(has_class, value))


def _column(name: str) -> str:
    return f"the column {_shown(name)}" if name else "the rows"


def _shown(name: object) -> str:
    said = str(name)
    return printable(said if len(said) <= _SHOWN_MAX else f"{said[:_SHOWN_MAX]}...")
