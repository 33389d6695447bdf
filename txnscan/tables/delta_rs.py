"""The Delta tables through delta-rs: no JVM, at paths and in object stores. Reads tables of Spark, and vice versa.

A table is loaded again before each step. Commits are exclusive: delta-rs never replaces a commit. On disks it uses a
hard link, in object stores a conditional put.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from types import FunctionType
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import (
    CommitProperties,
    DeltaTable,
    Field,
    PostCommitHookProperties,
    QueryBuilder,
    Schema,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from txnscan.config import ConfigError, Location, printable
from txnscan.sweeps.column import StoredColumn
from txnscan.tables.conditions import DATAFUSION, Condition
from txnscan.tables.data_files import (
    FILES_MAX,
    MAINTAIN_FILES_MAX,
    FileCount,
    ListValues,
    TableReadSize,
    TooLarge,
    check_batch,
)
from txnscan.tables.delta import Answer, By, Compacted, Matched, NotMatched, Row, arrow_of, from_arrow, properties
from txnscan.tables.delta_log import Examination
from txnscan.tables.metadata import REMEDY, TableRefused, check
from txnscan.tables.parquet import VALUES_MAX
from txnscan.tables.replay import MAINTAIN_BYTES_MAX, REPLAY_BYTES_MAX, Room
from txnscan.tables.schema import FACTS, SWEEPS, TABLES, TOPIC_READS, Table

# Schemes by Spark's name, with object_store's name for each.
_SCHEMES = {"s3a": "s3", "s3n": "s3"}
_SAID_MAX = 300
# The features of Delta that Spark gives txnscan's own tables. delta-rs can write them.
_FEATURES = frozenset({"appendOnly", "changeDataFeed", "checkConstraints", "generatedColumns", "invariants"})
# Hadoop's checksum of the file that names the last checkpoint.
_CHECKSUM = "._last_checkpoint.crc"
# With less room on the disk no rows are written.
_ROOM_BYTES = 1024 * 1024
# The separator between an error and its cause, in red.
_ARROW = re.compile(r" *(?:->|\x1b\[\d+m\u21b3\x1b\[0m) *")
# Set where S3 is another server than Amazon's.
_OTHER_SERVERS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
# Keeps the log short by itself: a checkpoint now and then, which removes commits older than the log's retention.
_AFTER_COMMIT = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=True)
# Of compacted files. By default a million rows make a group, which exceeds the limits of `parquet.py`.
_ROWS_OF_GROUP_MAX = 20_000
# A row of these has hundreds of partitions.
ROWS_OF_GROUP_MAX = dict.fromkeys((FACTS.name, SWEEPS.name, TOPIC_READS.name), 2_000)
# Reads files one after another. By default each core has one in memory, and most files have a few rows.
_ONE_FILE = {"datafusion.execution.target_partitions": "1"}
# Of rows with lists, a thousand take megabytes.
_FEW_ROWS = {**_ONE_FILE, "datafusion.execution.batch_size": "1024"}
_MAPPING = "delta.columnmapping."
# In a path: delta-rs panics, or decodes them and writes elsewhere. A text of Python has surrogates for bytes that are
# not UTF-8.
_NOT_IN_PATHS = re.compile(r"[\x00-\x1f\x7f\\\[\]^|\ud800-\udfff]|%[0-9A-Fa-f]{2}")
# A sweep merges the small files of a table when it adds one to so many files, or to so many bytes. That takes about two
# seconds. Files of half the size of a merged file are left alone from then on. If nobody ever merged the small files of
# a table, that would take longer than a sweep should, and `maintain` does it.
SMALL_FILES_MAX, _SMALL_BYTES_MAX = 100, 16 << 20
_MERGED_BYTES, _SMALL_BYTES, _TIDY_BYTES_MAX = 4 << 20, 2 << 20, 64 << 20
# `maintain` merges more files than these in two steps, the first of which makes files of this size.
_FILES_AT_ONCE, _FIRST_BYTES = 400, 1 << 20


@contextlib.contextmanager
def _panics_as_errors() -> Iterator[None]:
    """Raises a DeltaError in place of a panic of delta-rs, which is no Exception: nobody would catch it, and the result
    of a sweep would be lost.
    """
    try:
        yield
    except BaseException as error:
        # Each library of Rust has a class of its own by this name, and no module has it.
        if type(error).__name__ != "PanicException":
            raise
        raise DeltaError(f"delta-rs failed: {error}") from None


def _without_panics(delta: type[DeltaRs]) -> type[DeltaRs]:
    """The class, with `_panics_as_errors` around each public method."""
    for name, call in list(vars(delta).items()):
        if isinstance(call, FunctionType) and not name.startswith("_"):
            setattr(delta, name, _panics_as_errors()(call))
    return delta


@_without_panics
class DeltaRs:
    """See `delta.Delta`. storage_options: for object stores, as delta-rs names them. Options in the environment count
    too. to_maintain: logs may be larger than for other uses.

    Raises ConfigError for a catalog, which only Spark can open, and for a path that delta-rs cannot open.
    """

    def __init__(
        self, location: Location, storage_options: Mapping[str, str] | None = None, *, to_maintain: bool = False
    ) -> None:
        self.location = location
        if location.in_catalog:
            raise ConfigError("--tables", f"{printable(location.text)} is in a catalog, which needs Spark")
        if location.path is not None:
            _check_path(location.path)
        self._options = dict(storage_options or {})
        room = Room(MAINTAIN_BYTES_MAX if to_maintain else REPLAY_BYTES_MAX)
        self._files = FileCount(MAINTAIN_FILES_MAX if to_maintain else FILES_MAX)
        # Tables are used at once. Their examinations are not: each has a part of a file in memory.
        self._one_examines = Lock()
        self._examinations = (
            {table.name: Examination(table, Path(self._uri(table)), room) for table in TABLES}
            if location.path is not None
            else {}
        )

    def name(self, table: Table) -> str:
        """The location of the table."""
        return self.location.of_table(table.name)

    def check_files(self, table: Table, *, whole: bool = True) -> None:
        """See Delta."""
        examination = self._examinations.get(table.name)
        if examination is not None:
            with self._one_examines:
                examination.check(whole=whole)

    def columns(self, table: Table) -> frozenset[str] | None:
        """See Delta."""
        found = self._find(table)
        return None if found is None else frozenset(field.name for field in found.schema().fields)

    def properties(self, table: Table) -> dict[str, str]:
        """See Delta."""
        return dict(self._table(table).metadata().configuration)

    def check_place(self) -> None:
        """See Delta. Directories are made with the tables."""

    def can_write(self) -> bool:
        """Whether no table at the location has a feature that a user gave it, such as CLUSTER BY or deletion vectors.
        delta-rs knows only some of them. False for a table that cannot be opened. Raises TableRefused.
        """
        try:
            found = [self._find(table) for table in TABLES]
        except TableRefused:
            raise
        except (ConfigError, DeltaError, OSError):
            return False
        protocols = [one.protocol() for one in found if one is not None]
        return all(_FEATURES.issuperset((*(p.writer_features or ()), *(p.reader_features or ()))) for p in protocols)

    def create(self, table: Table) -> None:
        """See Delta. In one commit, so that no table is there without its constraints."""
        if self.location.path is not None:
            Path(self._uri(table)).mkdir(parents=True, exist_ok=True)
        DeltaTable.create(
            self._uri(table),
            Schema(list(map(_field, table.columns))),
            mode="ignore",
            description=table.meaning,
            partition_by=list(table.partitioned_by) or None,
            # From version 3 on writers keep constraints, from 4 on the feed of changes.
            configuration={**properties(table), "delta.minWriterVersion": "4" if table.change_feed else "3"},
            storage_options=self._options,
            raise_if_key_not_exists=False,
        )

    def add_columns(self, table: Table, columns: Sequence[StoredColumn]) -> None:
        """See Delta."""
        self._writable(table).alter.add_columns(list(map(_field, columns)), post_commithook_properties=_AFTER_COMMIT)

    def set_properties(self, table: Table, changed: Mapping[str, str]) -> None:
        """See Delta."""
        self._writable(table).alter.set_table_properties(dict(changed), raise_if_not_exists=False)

    def read(
        self,
        table: Table,
        *where: Condition,
        columns: Sequence[str] | None = None,
        order: Sequence[By] = (),
        limit: int | None = None,
    ) -> list[Row]:
        """See Delta."""
        found = self._table(table)
        has = _own(table, found)
        chosen = has if columns is None else [name for name in columns if name in has]
        sql = f"SELECT {', '.join(map(DATAFUSION.named, chosen))} FROM t WHERE {DATAFUSION.all_of(where)}"
        self._check_data(table, found, f"{sql} {' '.join(by.expression for by in order)}")
        if order and limit is None:
            # A sort keeps all rows in memory before it gives the first.
            for _ in _batches(_reader(found, sql)):
                pass
        if order:
            sql += f" ORDER BY {', '.join(map(_ordered, order))}"
        if limit is not None:
            sql += f" LIMIT {limit}"
        return from_arrow(_queried(found, sql), columns)

    def newest(self, table: Table, by: Sequence[str], at: str, *where: Condition) -> list[Row]:
        """See Delta."""
        found = self._table(table)
        keys = [f"_by{number}" for number in range(len(by))]
        of = ", ".join(f"{one} AS {key}" for one, key in zip(by, keys, strict=True))
        which = DATAFUSION.all_of(where)
        sql = f"SELECT {of}, max({at}) AS _last FROM t WHERE {which} GROUP BY {', '.join(by)}"
        self._check_data(table, found)
        last = from_arrow(_queried(found, sql))
        newest = {tuple(row.values()) for row in last}
        # In two queries: a window or a join may keep all rows of the table in memory.
        times = ", ".join(map(_timestamp, sorted({row["_last"] for row in last} - {None})))
        names = _own(table, found)
        sql = f"SELECT {', '.join(map(DATAFUSION.named, names))}, {of} FROM t WHERE {which} AND {at} IN ({times})"
        rows = from_arrow(_queried(found, sql)) if times else []
        return [{name: row[name] for name in names} for row in rows if (*(row[key] for key in keys), row[at]) in newest]

    def append(self, table: Table, rows: pa.Table, *, once: str | None = None) -> None:
        """See Delta. delta-rs does not check whether an application's transaction is written already, so this does."""
        found = self._roomy(table)
        if once is None:
            values = ListValues()
            for batch in rows.to_batches():
                values.add(batch)
            group = values.rows_max(VALUES_MAX, _ROWS_OF_GROUP_MAX)
            # Most sweeps fit into one.
            options: dict[str, Any] = {"writer_properties": _written(group)} if group < rows.num_rows else {}
            write_deltalake(found, rows, mode="append", post_commithook_properties=_AFTER_COMMIT, **options)
            self._tidy(table, found)
            return
        app = f"txnscan-{once}"
        if found.transaction_version(app) is None:
            commit = CommitProperties(app_transactions=[Transaction(app, 1)])
            write_deltalake(
                found, rows, mode="append", commit_properties=commit, post_commithook_properties=_AFTER_COMMIT
            )

    def replace(self, table: Table, rows: pa.Table, *where: Condition) -> None:
        """See Delta."""
        part = DATAFUSION.all_of(where)
        write_deltalake(
            self._roomy(table, decodes=True),
            rows,
            mode="overwrite",
            predicate=part,
            post_commithook_properties=_AFTER_COMMIT,
        )

    def merge(self, table: Table, rows: pa.Table, on: str, clauses: Sequence[Matched | NotMatched]) -> None:
        """See Delta."""
        merger = self._roomy(table, decodes=True).merge(
            rows, on, source_alias="s", target_alias="t", post_commithook_properties=_AFTER_COMMIT
        )
        for clause in clauses:
            if isinstance(clause, Matched):
                merger = merger.when_matched_update(dict(clause.to), predicate=clause.condition)
            else:
                merger = merger.when_not_matched_insert(
                    {name: f"s.{name}" for name in clause.columns}, predicate=clause.condition
                )
        merger.execute()

    def update(self, table: Table, column: str, value: str, *where: Condition) -> None:
        """See Delta."""
        self._roomy(table, decodes=True).update(
            new_values={column: value},
            predicate=DATAFUSION.all_of(where),
            post_commithook_properties=_AFTER_COMMIT,
        )

    def delete(self, table: Table, *where: Condition) -> int:
        """See Delta."""
        metrics = self._writable(table, decodes=True).delete(
            DATAFUSION.all_of(where), post_commithook_properties=_AFTER_COMMIT
        )
        return int(metrics["num_deleted_rows"] or 0)

    def compact(self, table: Table) -> Compacted:
        """See Delta."""
        values = ListValues()
        found = self._writable(table, decodes=True, values=values)
        if len(found.file_uris()) <= _FILES_AT_ONCE:
            return _merged(table, found, values)
        # delta-rs keeps what it knows of the files of one merge, so these are small at first.
        small = _merged(table, found, values, _FIRST_BYTES)
        large = _merged(table, found, values)
        again = min(small.added, large.removed)
        return Compacted(small.removed + large.removed - again, small.added + large.added - again)

    def _tidy(self, table: Table, found: DeltaTable) -> None:
        """Merges the files of a table if many are small, so that it can be opened also where nobody runs `maintain`.
        The rows are stored already, so a failure fails nothing: the next sweep tries again, and so does `maintain`.
        """
        with contextlib.suppress(Exception), _panics_as_errors():
            files = found.get_add_actions()
            sizes = zip(_paths(files), files.column("size_bytes").to_pylist(), strict=True)
            small = {path: size for path, size in sizes if size < _SMALL_BYTES}
            folders, total = {path.rpartition("/")[0] for path in small}, sum(small.values())
            many = len(small) - len(folders) >= SMALL_FILES_MAX or total > _SMALL_BYTES_MAX
            if many and total <= _TIDY_BYTES_MAX:
                found = self._roomy(table)
                _merged(table, found, self._values_in(table, small), _MERGED_BYTES)

    def _values_in(self, table: Table, paths: Collection[str]) -> ListValues:
        """The values in lists of these files, if files have limits. Raises TableRefused, and TooLarge."""
        values, examination = ListValues(), self._examinations.get(table.name)
        if examination is None:
            return values
        with self._one_examines:
            examination.check_data(paths)
        for path in paths:
            values.add_file(f"{self._uri(table)}/{path}")
        return values

    def vacuum(self, table: Table, older_than_hours: int) -> int:
        """See Delta. A full vacuum, as Spark's is: the files of the change data feed are in no list of removed ones."""
        found = self._writable(table)
        removed = found.vacuum(older_than_hours, dry_run=False, enforce_retention_duration=False, full=True)
        found.create_checkpoint()
        found.cleanup_metadata()
        return len(removed)

    def files(self, table: Table) -> str | None:
        """See Delta."""
        return None if self._find(table) is None else self._uri(table)

    def data_files(self, table: Table) -> list[str]:
        """The paths of its present files on a disk, for other readers."""
        found = self._table(table)
        self._check_data(table, found)
        return [f"{self._uri(table)}/{path}" for path in _paths(found.get_add_actions())]

    def why_shared(self, scheme: str) -> str | None:
        """See Delta. On S3 a commit rests on a conditional put. Amazon has it; other servers of S3 are tried."""
        if scheme not in ("s3", *_SCHEMES):
            return None
        settings = {name.upper(): value for name, value in {**os.environ, **self._options}.items()}
        shared = "two applies could run at once there"
        if settings.get("AWS_S3_ALLOW_UNSAFE_RENAME", "").lower() == "true":
            return f"{shared}: AWS_S3_ALLOW_UNSAFE_RENAME is set; take it away"
        if not any(settings.get(name) for name in _OTHER_SERVERS):
            return None
        try:
            kept = self._keeps_what_is_there(settings)
        except Exception as error:
            # A store fails in as many ways as there are kinds of it.
            return f"{shared}: whether the server keeps a second commit out could not be tried: {self.said(error)}"
        if kept:
            return None
        return f"{shared}: this server takes no notice of If-None-Match, and puts one commit in the place of another"

    def _keeps_what_is_there(self, settings: Mapping[str, str]) -> bool:
        """Whether the server refuses to put a file where there is one. Puts one twice, and deletes it."""
        if find_spec("obstore") is None:
            raise RuntimeError("it needs the library obstore; install txnscan[s3]")
        from obstore import delete, put
        from obstore.exceptions import AlreadyExistsError
        from obstore.store import S3Store

        plain = settings.get("AWS_ALLOW_HTTP", "").lower() == "true"
        store = S3Store.from_url(
            self._uri_of(self.location.text),
            config=self._options,  # type: ignore[arg-type]
            client_options={"allow_http": plain},
        )
        name = f"_txnscan_{uuid.uuid4()}"
        put(store, name, b"tried by txnscan apply: may be deleted", mode="create")
        try:
            put(store, name, b"and again", mode="create")
        except AlreadyExistsError:
            return True
        finally:
            delete(store, name)
        return False

    def for_thread(self, call: Callable[[], Answer]) -> Callable[[], Answer]:
        """See Delta."""
        return call

    def is_conflict(self, error: BaseException) -> bool:
        """See Delta."""
        # A table that delta-rs cannot write at all fails in the same way, every time.
        return isinstance(error, CommitFailedError) and "Unsupported table features" not in str(error)

    def said(self, error: BaseException) -> str:
        """See Delta."""
        # Text after a blank line shows data.
        said = " ".join(_ARROW.sub(": ", str(error)).partition("\n\n")[0].partition("\nPreview of")[0].split())
        said = said.removeprefix("Generic DeltaTable error: ").removeprefix("External error: ")
        return said if len(said) <= _SAID_MAX else f"{said[:_SAID_MAX]} ..."

    def _uri(self, table: Table) -> str:
        folder = self.location.path
        return self._uri_of(self.name(table)) if folder is None else str(folder / table.name)

    def _uri_of(self, name: str) -> str:
        scheme, _, rest = name.partition("://")
        return f"{_SCHEMES.get(scheme, scheme)}://{rest}"

    def _check_data(self, table: Table, found: DeltaTable, sql: str | None = None) -> None:
        """Checks that no file of the table exhausts delta-rs. sql: its text has the columns that are read; without it,
        all are. Raises TableRefused.
        """
        examination = self._examinations.get(table.name)
        if examination is None:
            return
        # With a mapping, columns have other names in files.
        is_mapped = any(name.casefold().startswith(_MAPPING) for name in found.metadata().configuration)
        unused = () if sql is None or is_mapped else [one.name for one in table.columns if one.name not in sql]
        paths = _paths(found.get_add_actions())
        try:
            self._files.add(table.name, len(paths))
        except TooLarge as error:
            raise TableRefused(table, f"it {error}") from None
        examination.check_data(paths, unused)

    def _writable(self, table: Table, *, decodes: bool = False, values: ListValues | None = None) -> DeltaTable:
        """The table, for a write. decodes: one that reads rows. values: gets those rows, if files have limits. delta-rs
        prints a stack trace if it may not write. Raises PermissionError.
        """
        found = self._table(table)
        if decodes and self._examinations:
            self._check_data(table, found)
            try:
                # A read shares equal texts, and a write does not.
                for batch in _reader(found, "SELECT * FROM t", _ONE_FILE):
                    check_batch(batch)
                    if values is not None:
                        values.add(batch)
            except TooLarge as error:
                raise TableRefused(table, f"it {error}; {REMEDY}") from None
        if self.location.path is not None:
            top = Path(self._uri(table))
            for folder in (top, *(path for path in top.iterdir() if path.is_dir())):
                if not os.access(folder, os.W_OK | os.X_OK):
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
            # delta-rs may replace the file without its checksum. Spark would then warn that the file is corrupt, and
            # search for the last checkpoint.
            (top / "_delta_log" / _CHECKSUM).unlink(missing_ok=True)
        return found

    def _roomy(self, table: Table, *, decodes: bool = False) -> DeltaTable:
        """As `_writable`, for a write of rows. A thread of delta-rs panics if the disk is full. Raises OSError."""
        found = self._writable(table, decodes=decodes)
        if self.location.path is not None:
            largest, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
            if largest != resource.RLIM_INFINITY and largest < _ROOM_BYTES:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), self._uri(table))
            disk = os.statvfs(self._uri(table))
            if disk.f_bavail * disk.f_frsize < _ROOM_BYTES:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._uri(table))
        return found

    def _table(self, table: Table) -> DeltaTable:
        found = self._find(table)
        if found is None:
            raise TableNotFoundError(f"there is no table {table.name} at {self.location}")
        return found

    def _find(self, table: Table) -> DeltaTable | None:
        """The table as it is now. Raises TableRefused if its metadata would make Spark or delta-rs evaluate something,
        or if its log is too large for delta-rs.
        """
        self.check_files(table, whole=False)
        try:
            found = DeltaTable(self._uri(table), storage_options=self._options)
        except TableNotFoundError:
            return None
        except DeltaError as error:
            if "does not exist" in str(error) or "No files in log segment" in str(error):
                return None
            raise
        protocol = found.protocol()
        check(
            table,
            {"schemaString": found.schema().to_json(), "configuration": found.metadata().configuration},
            {"readerFeatures": protocol.reader_features, "writerFeatures": protocol.writer_features},
        )
        return found


def _check_path(path: Path) -> None:
    """Raises ConfigError if delta-rs cannot open tables there. It follows links first."""
    given = str(path)
    # No link has a name with this.
    real = given if "\0" in given else os.path.realpath(given)
    found = _NOT_IN_PATHS.search(real)
    if found is not None:
        why = f"delta-rs cannot open a path with {found[0]!a}; name another directory"
        raise ConfigError("--tables", f"{printable(real)} cannot be used: {why}")


def _field(column: StoredColumn) -> Field:
    (field,) = Schema.from_arrow(pa.schema([pa.field(column.name, arrow_of(column))])).fields
    return Field(column.name, field.type, nullable=not column.required, metadata={"comment": column.meaning})


def _written(rows: int) -> WriterProperties:
    """How files are written, with so many rows in a group. With properties of the writer, delta-rs does not compress by
    itself.
    """
    return WriterProperties(compression="ZSTD", compression_level=4, max_row_group_size=rows, write_batch_size=64)


def _merged(table: Table, found: DeltaTable, values: ListValues, target_size: int | None = None) -> Compacted:
    """Merges files, up to this size or Delta's own. values: in the lists of the rows that may be merged."""
    written = _written(values.rows_max(VALUES_MAX, ROWS_OF_GROUP_MAX.get(table.name, _ROWS_OF_GROUP_MAX)))
    metrics = found.optimize.compact(
        target_size=target_size,
        max_concurrent_tasks=1,
        writer_properties=written,
        post_commithook_properties=_AFTER_COMMIT,
    )
    return Compacted(metrics["numFilesRemoved"], metrics["numFilesAdded"])


def _paths(files: pa.RecordBatch) -> list[str]:
    """The paths of files, relative to the folder of their table."""
    return [unquote(path) for path in files.column("path").to_pylist()]


def _own(table: Table, found: DeltaTable) -> list[str]:
    """The columns of txnscan in the table. Columns that a user added are not read."""
    has = {field.name for field in found.schema().fields}
    return [column.name for column in table.columns if column.name in has]


def _queried(table: DeltaTable, sql: str) -> pa.Table:
    reader = _reader(table, sql)
    return pa.Table.from_batches(_batches(reader), reader.schema)


def _reader(table: DeltaTable, sql: str, settings: dict[str, str] = _FEW_ROWS) -> pa.RecordBatchReader:
    # `to_pyarrow_table` may end the process when it ends itself (status 134); a query does not.
    return pa.RecordBatchReader.from_stream(QueryBuilder(settings).register("t", table).execute(sql))


def _batches(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """The batches. Raises TooLarge."""
    counted = TableReadSize()
    for batch in reader:
        counted.add(batch)
        yield batch


def _timestamp(time: datetime) -> str:
    return f"arrow_cast('{time.isoformat()}', 'Timestamp(Microsecond, Some(\"UTC\"))')"


def _ordered(by: By) -> str:
    return f"{by.expression} {'DESC NULLS LAST' if by.descending else 'ASC NULLS FIRST'}"
