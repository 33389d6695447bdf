"""`python -m tests.prove.mutants`: every small change to the judge and the coverage logic must fail a test.

One change at a time is made to a module (`mutations.py` defines the changes). The changed source replaces the module in
a separate process, and the module's tests run there until one fails: the mutant is killed. If no test fails, the mutant
has survived: the tests have a gap, or the code is unnecessary, unless `EXPLAINED` gives the reason why the change has
no effect. Exit status 1 on a survivor without an explanation, and on an explanation without a survivor. No file is
written into the tree.

Arguments are names of files, to run only these. `--changed REF` runs those that differ from a commit or branch, or
whose tests do. A module runs again when it, its tests, or what these import changed (`parts.py`), and the output names
the commit.

This is own code, because mutmut 3 changes only functions, while half of the judge is tables (`RULES`,
`_SERVES_PARTITION`), and writes a copy of the project next to it; cosmic-ray changes the sources in place.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import importlib.abc
import importlib.util
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import kafka.net.manager
import kafka.protocol.admin
import kafka.protocol.consumer  # noqa: F401  what the tests import besides txnscan, once for all children
import pytest
import syrupy  # noqa: F401  the same

from tests.prove.mutations import Mutant, mutants_of
from tests.prove.parts import Parts, changed_since, commit, imported_by

ROOT = Path(__file__).parents[2]
PROCESSES = 2
# The tests of a module take a few seconds. The CPU limit ends an endless loop, which counts as killed.
CPU_S_MAX = 30
WALL_S_MAX = 300


@dataclass(frozen=True)
class Target:
    """A module, or one function of it, and the tests that must fail, fast tests first. file: under `txnscan/`."""

    file: str
    tests: tuple[str, ...]
    function: str | None = None

    @property
    def source(self) -> str:
        return (ROOT / "txnscan" / self.file).read_text("utf-8")


def module_of(file: str) -> str:
    """The name of the module."""
    return "txnscan." + file.removesuffix(".py").replace("/", ".")


TARGETS = (
    Target("verdict/rules.py", ("unit/test_rules.py", "unit/test_joined_commit.py")),
    Target("verdict/predicates.py", ("unit/test_rules.py", "unit/test_joined_commit.py")),
    Target("verdict/explanations.py", ("unit/test_rules.py", "unit/test_joined_commit.py", "unit/test_ending.py")),
    Target("verdict/join.py", ("unit/test_join.py",)),
    Target("verdict/ending.py", ("unit/test_ending.py", "unit/test_blocking.py")),
    Target("sweeps/observations.py", ("unit/test_observations.py",)),
    Target(
        "coordinators/agreed_metadata.py",
        ("unit/test_agreed_metadata.py", "unit/test_coordinator_listing.py", "unit/test_crowd_work.py"),
    ),
    Target("sweeps/reader.py", ("unit/test_agreed_metadata.py",), function="confirmed"),
    Target("reads/proven_read.py", ("unit/test_proven_read.py",)),
    Target("coordinators/visibility.py", ("unit/test_visibility.py", "unit/test_coordinator_listing.py")),
    Target("coordinators/metadata_image.py", ("unit/test_metadata_image.py", "unit/test_outside_kraft.py")),
    Target("coordinators/coordinator_listing.py", ("unit/test_coordinator_listing.py", "unit/test_crowd_work.py")),
    Target(
        "coordinators/claims.py", ("unit/test_claims.py", "unit/test_observations.py", "unit/test_joined_commit.py")
    ),
    Target(
        "verdict/outcome.py",
        ("unit/test_outcome.py", "unit/test_joined_commit.py", "unit/test_signs_of_loss.py"),
    ),
    Target("txnlog/transitions.py", ("unit/test_outcome.py", "unit/test_verification.py")),
    Target("txnlog/lineage.py", ("unit/test_lineage.py",)),
    Target("txnlog/elections.py", ("unit/test_outcome.py",)),
    Target("coordinators/quorum.py", ("unit/test_quorum.py", "unit/test_before_stop.py")),
    Target("sweeps/identity.py", ("unit/test_identity.py",)),
    Target("txnlog/signs_of_loss.py", ("unit/test_signs_of_loss.py",)),
    Target("sweeps/restored.py", ("unit/test_restored.py",)),
    Target("sweeps/endings.py", ("unit/test_joined_commit.py", "unit/test_endings.py")),
    Target("waiting/event.py", ("unit/test_event.py",)),
    Target("waiting/relation.py", ("unit/test_relation.py",)),
    Target("sweeps/news.py", ("unit/test_notifications.py",)),
    Target("tables/incidents.py", ("unit/test_incidents.py",)),
    Target("txnlog/verification.py", ("unit/test_verification.py",)),
    Target("txnlog/scan.py", ("unit/test_log_scan.py", "unit/test_log_reads.py")),
    Target("kafka/protocol/search.py", ("unit/test_search.py",)),
    Target("kafka/protocol/search_columns.py", ("unit/test_search.py",)),
    Target("txnlog/columns.py", ("unit/test_log_columns.py",)),
    Target("txnlog/decode.py", ("unit/test_txnlog_decode.py",)),
    Target("resolve/guard.py", ("unit/test_guard.py", "unit/test_offer.py", "unit/test_abort.py")),
    Target("resolve/offer.py", ("unit/test_offer.py",)),
    Target("resolve/peer_partitions.py", ("unit/test_peer_partitions.py",)),
)
# By file, function and change: why the change has no visible effect.
Key = tuple[str, str, str]
_EQUAL_VIEWS = "it saves work: equal views merge to the same view"
_PIECES = "a log is the same in pieces of any size"
_SAME_BATCHES = "both look at the same batches"
_AS_LONG = "both have two states"
_ITSELF = "a record has the same state as itself"
_LABELS = "the labels of the others keep it apart"
_READS = "it saves a read, and the log start is enough"
_CHOSEN = "a chosen limit, whose neighbours are not wrong"
_OF_EACH_VIEW = "there is one of them for each view"
_ENDS = "a slice ends where the log ends"
_DECISIONS = "neither a decision nor the record before it completes it"
_TYPED = "only type checkers use it"
_NOT_SHOWN = "the error is not shown: the answer is unknown"
_TYPES = "the types cannot say so"
_HEADERS = "headers are enough, and what is decoded besides is not looked at"
EXPLAINED: dict[Key, str] = {
    (
        "verdict/rules.py",
        "",
        "predicates.id_may_be_hidden, predicates.may_send_again → "
        "predicates.may_send_again, predicates.id_may_be_hidden",
    ): "one needs no view, the other one view",
    (
        "verdict/rules.py",
        "",
        "predicates.orphan, predicates.missed_commit → predicates.missed_commit, predicates.orphan",
    ): "one needs no view, the other one",
    (
        "verdict/rules.py",
        "",
        "predicates.stale_epoch, predicates.live_epoch → predicates.live_epoch, predicates.stale_epoch",
    ): ("the coordinator's epoch is above the partition's in one, and equal to it in the other"),
    (
        "verdict/explanations.py",
        "two_phase",
        "predicates.owners(e)[0] → predicates.owners(e)[-1]",
    ): "any of several owners may be named",
    (
        "verdict/explanations.py",
        "owned",
        "predicates.owners(e)[0] → predicates.owners(e)[-1]",
    ): "any of several owners may be named",
    (
        "verdict/predicates.py",
        "uncovered",
        "any((view.coverage_failure is not None → all((view.coverage_failure is not None",
    ): ("two views are a split, which is told before; of one view, any and all say the same"),
    (
        "verdict/predicates.py",
        "live_epoch",
        "is not None and view.producer_epoch == e.observation.producer_epoch → is not None",
    ): "an epoch below and one above were told before; the rule says what it means without leaning on them",
    ("coordinators/agreed_metadata.py", "", "ROUNDS_MAX = 5 → ROUNDS_MAX = 4"): _CHOSEN,
    ("coordinators/agreed_metadata.py", "", "ROUNDS_MAX = 5 → ROUNDS_MAX = 6"): _CHOSEN,
    (
        "coordinators/agreed_metadata.py",
        "AgreedMetadata.gone",
        "zip(found, self.views, strict=True) → zip(found, self.views)",
    ): _OF_EACH_VIEW,
    ("coordinators/agreed_metadata.py", "AgreedMetadata.gone", "strict=True → strict=False"): _OF_EACH_VIEW,
    (
        "coordinators/agreed_metadata.py",
        "read_all_views",
        "if not to_ask: break → if False: break",
    ): "a round without brokers asks nobody",
    (
        "coordinators/metadata_image.py",
        "read_latest",
        "answer in reported.values() if isinstance(answer, Failure) → answer in reported.values()",
    ): f"without a view, every answer is a failure; {_TYPES}",
    (
        "coordinators/metadata_image.py",
        "Latest",
        "| None = None → | None = 'mutant' #2",
    ): "outside KRaft mode it is not used, and elsewhere it is given",
    (
        "coordinators/metadata_image.py",
        "_without_order",
        "one in agreed.errors if one.broker is not None → one in agreed.errors",
    ): f"the failures of a round of Metadata have a broker; {_TYPES}",
    (
        "coordinators/metadata_image.py",
        "_merged",
        "if all((other == first for other in others)): … → if False: return (first, frozenset())",
    ): _EQUAL_VIEWS,
    ("coordinators/metadata_image.py", "_merged", "return (first, frozenset()) → pass"): _EQUAL_VIEWS,
    ("coordinators/coordinator_listing.py", "_knows", "return False → pass #2"): "None is as false as False",
    (
        "coordinators/visibility.py",
        "_continued",
        "len(name) + 1 → len(name) + 2",
    ): "a slice ends where the name ends",
    ("txnlog/scan.py", "", "2 * 1024 → 1024"): _PIECES,
    ("txnlog/scan.py", "", "2 * 1024 → 3 * 1024"): _PIECES,
    (
        "txnlog/scan.py",
        "Records._take",
        "producer_id(value) in self.producer_ids and (name not in self._names) → "
        "producer_id(value) in self.producer_ids",
    ): "an id that is kept has no last record beside",
    (
        "txnlog/scan.py",
        "either.search",
        "zip(one(data, bounds), other(data, bounds), strict=True) → zip(one(data, bounds), other(data, bounds))",
    ): _SAME_BATCHES,
    ("txnlog/scan.py", "either.search", "strict=True → strict=False"): _SAME_BATCHES,
    ("txnlog/scan.py", "Records._take", "self._last.pop(name, None) → self._last.pop(name, 'mutant')"): (
        "nobody looks at what is thrown away"
    ),
    (
        "verdict/outcome.py",
        "Decision.raised",
        "self.epoch is not None and self.epoch < self.record.producer_epoch → self.epoch < self.record.producer_epoch",
    ): "only commits are asked, and the epoch of a commit is always told; the types cannot say so",
    (
        "verdict/outcome.py",
        "_at_epoch",
        "sorted({record.transactional_id for record in → list({record.transactional_id for record in",
    ): "of several names only the number is reported",
    ("verdict/outcome.py", "_at_epoch", "names[0] → names[-1]"): "where there is no doubt, there is one name",
    ("txnlog/transitions.py", "", "zip(PREPARED, COMPLETE, strict=True) → zip(PREPARED, COMPLETE)"): _AS_LONG,
    ("txnlog/transitions.py", "", "strict=True → strict=False"): _AS_LONG,
    ("txnlog/transitions.py", "_counted_at", "at + 1 → at"): _ITSELF,
    ("txnlog/transitions.py", "_counted_at", "at + 1 → at + 0"): _ITSELF,
    ("txnlog/transitions.py", "_counted_at", "len(logged) - 1 → len(logged)"): _ENDS,
    ("txnlog/transitions.py", "_counted_at", "len(logged) - 1 → len(logged) + 1"): _ENDS,
    ("txnlog/transitions.py", "_counted_at", "len(logged) - 1 → len(logged) - 0"): _ENDS,
    ("txnlog/transitions.py", "_first_before", "at < ours → at <= ours"): "that record has the producer id itself",
    (
        "txnlog/transitions.py",
        "_is_before",
        "record.producer_epoch < o.producer_epoch → record.producer_epoch <= o.producer_epoch",
    ): "they differ here",
    ("txnlog/lineage.py", "", "-1 → -2"): "offsets begin at 0",
    ("txnlog/lineage.py", "_confirmed", "(None, True, 0) → (None, True, -1)"): _CHOSEN,
    ("txnlog/lineage.py", "_confirmed", "(None, True, 0) → (None, True, 1)"): _CHOSEN,
    ("txnlog/lineage.py", "_confirmed", "looked_at > _LOOKED_AT_MAX → looked_at >= _LOOKED_AT_MAX"): _CHOSEN,
    ("waiting/relation.py", "kept", "one.lag or 0 → one.lag or -1"): "no lag is negative, and 0 is treated the same",
    ("waiting/relation.py", "", "KEPT_MAX = 100 → KEPT_MAX = 101"): _CHOSEN,
    ("waiting/relation.py", "", "KEPT_MAX = 100 → KEPT_MAX = 99"): _CHOSEN,
    (
        "waiting/relation.py",
        "",
        "TypeVar('One', BlockedGroup, BlockedReader) → TypeVar('', BlockedGroup, BlockedReader)",
    ): _TYPED,
    ("waiting/event.py", "Member.shared", "('producer', self.producer_id) → (self.producer_id,)"): _LABELS,
    ("waiting/event.py", "Member.shared", "('producer', self.producer_id) → ('', self.producer_id)"): _LABELS,
    ("waiting/event.py", "Member.shared", "('owner', self.owner_id) → ('', self.owner_id)"): _LABELS,
    ("waiting/event.py", "Member.shared", "('cause', self.cause) → (self.cause,)"): _LABELS,
    ("waiting/event.py", "Member.shared", "('cause', self.cause) → ('', self.cause)"): _LABELS,
    (
        "waiting/event.py",
        "_linked.top",
        "above[at] = above[above[at]] → pass",
    ): "it shortens later walks to the same top",
    (
        "sweeps/news.py",
        "events_of",
        "min(elsewhere, default=None) → max(elsewhere, default=None)",
    ): "an event never splits, so there is at most one",
    ("tables/incidents.py", "_at", "-1 → -2"): "high watermarks begin at 0",
    (
        "txnlog/signs_of_loss.py",
        "_decisions",
        "chain[at + 1:] if completes(record, later) → chain[at + 1:]",
    ): "a chain without gaps goes on with the completion, or with the same decision again",
    ("txnlog/signs_of_loss.py", "sign_of_loss", "1: → 0:"): "a chain without gaps begins before the epoch is over",
    ("txnlog/signs_of_loss.py", "_decisions", "at + 1 → at"): _DECISIONS,
    ("txnlog/signs_of_loss.py", "_decisions", "at + 1 → at + 0"): _DECISIONS,
    ("txnlog/signs_of_loss.py", "_decisions", "at + 1 → at - 1"): _DECISIONS,
    ("coordinators/quorum.py", "_shown_by", "agreed.views[0] → agreed.views[-1]"): "in KRaft mode there is one view",
    (
        "sweeps/restored.py",
        "",
        'HISTORY_WENT_BACK = "the cluster\'s history went back" → pass',
    ): "only other modules use it, and could not be imported",
    ("sweeps/endings.py", "_offsets.ask", "led[0] → led[-1]"): "all have one leader",
    ("sweeps/endings.py", "first_marker", "Reading('it') → Reading('')"): _NOT_SHOWN,
    ("sweeps/endings.py", "first_marker", "records=False → records=True"): _HEADERS,
    (
        "sweeps/endings.py",
        "first_marker",
        "batch.last_offset + 1) → batch.last_offset + 1) break",
    ): "the next answer begins there",
    ("sweeps/identity.py", "", "1024 * 1024 → 1024"): _PIECES,
    (
        "sweeps/identity.py",
        "identity",
        "later.start_offset < earlier.start_offset → later.start_offset <= earlier.start_offset",
    ): "at one start offset the epoch is lower here",
    ("sweeps/identity.py", "_between", "log_start <= earlier.start_offset → log_start < earlier.start_offset"): _READS,
    (
        "sweeps/identity.py",
        "_between",
        "log_start <= earlier.start_offset or later.start_offset < offset → later.start_offset < offset",
    ): _READS,
    ("sweeps/identity.py", "_between", "Reading('it') → Reading('')"): _NOT_SHOWN,
    ("sweeps/identity.py", "_between", "records=False → records=True"): _HEADERS,
    ("sweeps/identity.py", "_between", "if data else None → if data else 'mutant'"): "a text has no number of an epoch",
    ("sweeps/identity.py", "_between", "return found → pass #2"): "a read without progress ends, and shows no more",
    (
        "txnlog/scan.py",
        "pieces",
        "if end is None: high_watermark(send, partition) → if True: high_watermark(send, partition)",
    ): "only the error of an end that is not known counts, and here the end is given",
    (
        "resolve/guard.py",
        "",
        "TypeVar('About', bound=Swept, contravariant=True) → TypeVar('About', contravariant=True)",
    ): _TYPED,
    (
        "resolve/guard.py",
        "",
        "TypeVar('About', bound=Swept, contravariant=True) → TypeVar('About', bound=Swept)",
    ): _TYPED,
    (
        "resolve/guard.py",
        "",
        "TypeVar('About', bound=Swept, contravariant=True) → TypeVar('', bound=Swept, contravariant=True)",
    ): _TYPED,
    ("resolve/guard.py", "", "contravariant=True → contravariant=False"): _TYPED,
    (
        "resolve/offer.py",
        "swept",
        "row_of(TRANSACTION_COLUMNS, None, judged) → row_of(TRANSACTION_COLUMNS, 'mutant', judged)",
    ): "these columns do not look at the sweep",
    ("resolve/offer.py", "in_words", "| Refused, partitions: int=1 → | Refused, partitions: int=0"): "neither is many",
    ("resolve/peer_partitions.py", "_commit_marker", "records=False → records=True"): _HEADERS,
}


# --- one process for each mutant --------------------------------------------------------------------------------------


def preload(module: str) -> None:
    """Imports the dependencies of this module, once for all children, but no module that imports it."""
    for name in [name for name in sys.modules if name.startswith("txnscan.")]:
        forget(name)
    importlib.import_module(module)
    forget(module)


def forget(module: str) -> None:
    """Removes the module, so that the next import loads it again."""
    package, _, name = module.rpartition(".")
    del sys.modules[module]
    if package in sys.modules:
        vars(sys.modules[package]).pop(name, None)


class Replaced(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from this source."""

    def __init__(self, file: str, source: str) -> None:
        self._name = module_of(file)
        self._code = compile(source, file, "exec")

    def find_spec(self, name: str, path: object, target: object = None) -> Any:
        return importlib.util.spec_from_loader(name, self) if name == self._name else None

    def exec_module(self, module: Any) -> None:
        exec(self._code, module.__dict__)


class QuickFirst:
    """Sorts a target's tests: tests that took long without any change come last. Most mutants are killed before them.

    Writes the duration of each test to the file if the file does not exist.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._took_s: dict[str, float] = json.loads(file.read_text("utf-8")) if file.exists() else {}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        # Rounded, so that tests with similar durations keep their order.
        items.sort(key=lambda item: round(self._took_s.get(item.nodeid, 0.0), 1))

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call":
            self._took_s[report.nodeid] = report.duration

    def pytest_sessionfinish(self) -> None:
        if not self._file.exists():
            self._file.write_text(json.dumps(self._took_s), "utf-8")


def start(target: Target, source: str, took: Path) -> int:
    """The id of a new process that runs the tests of the target with this source, and exits with pytest's status.

    took: the file with the duration of each test, see QuickFirst.
    """
    process_id = os.fork()
    if process_id:
        return process_id
    with contextlib.suppress(BaseException):
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S_MAX, CPU_S_MAX))
        resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))
        signal.alarm(WALL_S_MAX)
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        sys.meta_path.insert(0, Replaced(target.file, source))
        plugins = ("-p", "no:cacheprovider", "-p", "syrupy", "-p", "tests.wording")
        plain = ("-x", "-q", "--noconftest", "--assert=plain", *plugins)
        tests = (str(ROOT / "tests" / test) for test in target.tests)
        os._exit(pytest.main([*plain, *tests], plugins=[QuickFirst(took)]))
    os._exit(1)


def tried(target: Target, mutants: Iterable[Mutant], took: Path) -> Iterator[tuple[Mutant, bool]]:
    """Each mutant, and whether it survived, in the order in which they end."""
    running: dict[int, Mutant] = {}
    waiting = iter(mutants)
    while True:
        while len(running) < PROCESSES and (mutant := next(waiting, None)) is not None:
            running[start(target, mutant.source, took)] = mutant
        if not running:
            return
        process_id, status = os.wait()
        yield running.pop(process_id), status == 0


# --- the run ----------------------------------------------------------------------------------------------------------


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def prepare(storage: str) -> None:
    """Makes all children equal: the same examples for the same mutant, and no files in the tree."""
    sys.pycache_prefix = storage
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = storage
    os.chdir(ROOT)
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile(
        "mutants",
        derandomize=True,
        database=None,
        deadline=None,
        max_examples=60,
        phases=phases,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    hypothesis.settings.load_profile("mutants")


def run(target: Target, took: Path) -> dict[str, Any]:
    """Runs the mutants of this target. Returns their number, how long it took, and each survivor with its line."""
    preload(module_of(target.file))
    # The children's garbage collector ignores the parent's objects, and so copies no memory pages of theirs.
    gc.freeze()
    start(target, ast.unparse(ast.parse(target.source)), took)
    if os.wait()[1] != 0:
        sys.exit(f"{target.file}: {', '.join(target.tests)} fail without any change")
    began_s = time.monotonic()
    results = list(tried(target, mutants_of(target.source, target.function), took))
    lived = {(target.file, m.function, m.change): m for m, survived in results if survived}
    return {
        "mutants": len(results),
        "took_s": round(time.monotonic() - began_s),
        "lived": [[*key, mutant.line] for key, mutant in lived.items()],
    }


ROW = "{:<36}{:>9}{:>9}{:>10}{:>11}{:>8}"


def chosen_by(arguments: Sequence[str], changed: Callable[[str], Collection[str]] = changed_since) -> list[Target]:
    """The targets for these arguments: file names, or `--changed` and a commit or branch. changed: see
    `parts.changed_since`.
    """
    if arguments[:1] == ["--changed"]:
        files = changed(arguments[1])
        return [
            target
            for target in TARGETS
            if not {f"txnscan/{target.file}", *(f"tests/{test}" for test in target.tests)}.isdisjoint(files)
        ]
    return [target for target in TARGETS if not arguments or target.file in arguments]


def main(arguments: Sequence[str]) -> int:
    chosen, at = chosen_by(arguments), commit()
    kept = Parts("mutants", at)
    say(f"commit {at}")
    say(ROW.format("", "mutants", "killed", "survived", "explained", ""))
    lines: dict[Key, int] = {}
    with tempfile.TemporaryDirectory() as storage:
        prepare(storage)
        for number, target in enumerate(chosen):
            part = f"{target.file} {target.function or ''}".strip()
            files = (f"txnscan/{target.file}", *(f"tests/{test}" for test in target.tests))
            known = kept.result(part, {"tests/prove/mutations.py", *imported_by(files)})
            if known is None:
                known = run(target, Path(storage) / f"took-{number}.json")
                kept.keep(part, known)
            lived = {(file, function, change): line for file, function, change, line in known["lived"]}
            mutants, explained = known["mutants"], len(lived.keys() & EXPLAINED.keys())
            say(ROW.format(target.file, mutants, mutants - len(lived), len(lived), explained, f"{known['took_s']} s"))
            lines |= lived
    unexplained = {key: line for key, line in lines.items() if key not in EXPLAINED}
    for (file, function, change), line in unexplained.items():
        say(f"{file}:{line} {function}: {change}")
    stale = {key for key in EXPLAINED if key[0] in {target.file for target in chosen}} - lines.keys()
    for key in sorted(stale):
        say(f"explained, but no such mutant survived: {key}")
    return 1 if unexplained or stale else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of strings get the same order in every run, so that each run kills the same mutants.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.prove.mutants", *sys.argv[1:]])
    sys.exit(main(sys.argv[1:]))
