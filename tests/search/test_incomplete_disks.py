"""A verdict from files is sound for every subset of the files, and for every file cut short: a search.

The disks are those of real brokers (`tests/golden/disks.py`). Each case makes one incomplete. Only transactions that
hang on the whole disk may be called hanging, and a complete answer has every open transaction. The one gap is stated:
no file shows that all files of a segment below the cleaner's offset are missing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.golden.disks import KINDS
from tests.search.incomplete import Case, Disk, answer, boundaries, disk_in, groups, wrong
from txnscan.offline import judging, missing, wholeness
from txnscan.offline.contents import Segment
from txnscan.offline.wholeness import Hole

NAMES = [kind.name for kind in KINDS]
# How many cases of each family the fast tier takes, at random but the same each time.
SAMPLE = 12
SUBSETS = 1_000
PAIRS_MAX = 3_000


@pytest.fixture
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Disk:
    """The recorded disk that the test is given as a parameter."""
    return disk_in(tmp_path, request.param)


def _name(disk: Disk, path: Path) -> str:
    return str(path.relative_to(disk.data))


def missing_files(disk: Disk) -> Iterator[Case]:
    """Each file."""
    for path in disk.files:
        yield _name(disk, path), [path], {}


def missing_groups(disk: Disk) -> Iterator[Case]:
    """All files of a segment, of a folder, of a kind."""
    for name, paths in groups(disk).items():
        yield name, paths, {}


def cut_files(disk: Disk) -> Iterator[Case]:
    """Each file, cut at every batch, entry and line, and at random bytes."""
    rng = random.Random(1)
    for path in disk.files:
        content = path.read_bytes()
        for at in {*boundaries(path), *(rng.randint(0, len(content)) for _ in range(3))}:
            yield f"{_name(disk, path)} cut at {at}", [], {path: content[:at]}


def older_files(disk: Disk) -> Iterator[Case]:
    """Each file, as it was at an earlier moment."""
    for path in disk.files:
        before = disk.earlier / path.relative_to(disk.data)
        if before.exists():
            yield f"{_name(disk, path)} of an earlier moment", [], {path: before.read_bytes()}


def missing_pairs(disk: Disk) -> Iterator[Case]:
    """Each pair of files; of a larger disk, some."""
    pairs = list(combinations(disk.files, 2))
    for one, other in pairs if len(pairs) <= PAIRS_MAX else random.Random(4).sample(pairs, PAIRS_MAX):
        yield f"{_name(disk, one)} and {_name(disk, other)}", [one, other], {}


def subsets(disk: Disk) -> Iterator[Case]:
    """Subsets at random, with some of the remaining files cut short."""
    rng, files = random.Random(2), disk.files
    for number in range(SUBSETS):
        share = rng.choice([0.02, 0.05, 0.1, 0.3, 0.6])
        removed = [path for path in files if rng.random() < share]
        contents = {}
        for path in files:
            if path not in removed and rng.random() < share:
                content = path.read_bytes()
                contents[path] = content[: rng.choice([*boundaries(path), rng.randint(0, len(content))])]
        yield f"subset {number}", removed, contents


FAMILIES: tuple[Callable[[Disk], Iterator[Case]], ...] = (
    *(missing_files, missing_groups, cut_files, older_files, missing_pairs, subsets),
)


@pytest.mark.parametrize("disk", NAMES, indirect=True)
def test_a_whole_disk_has_its_verdicts(disk: Disk) -> None:
    """Otherwise the searches would prove nothing. The brokers stopped or were killed while six to eight were live."""
    whole = answer(disk.data)
    killed = not [*disk.data.glob("*/.kafka_cleanshutdown")]
    assert (len(whole.open), len(whole.hanging), whole.complete) == ((9, 1, False) if killed else (9, 3, True))


@pytest.mark.parametrize("disk", NAMES, indirect=True)
def test_some_incomplete_disks_accuse_nobody(disk: Disk, record_property: Callable[[str, object], None]) -> None:
    rng = random.Random(3)
    cases = []
    for family in FAMILIES:
        of_family = list(family(disk))
        cases += rng.sample(of_family, min(SAMPLE, len(of_family)))
    _assert_sound(disk, iter(cases), record_property)


@pytest.mark.parametrize("disk", NAMES, indirect=True)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_every_incomplete_disk_accuses_nobody(
    disk: Disk, family: Callable[[Disk], Iterator[Case]], record_property: Callable[[str, object], None]
) -> None:
    _assert_sound(disk, family(disk), record_property)


def _assert_sound(disk: Disk, cases: Iterator[Case], record_property: Callable[[str, object], None]) -> None:
    found = list(wrong(disk, answer(disk.data), cases))
    failed = [one for one in found if one is not None]
    record_property("cases", len(found))
    assert not failed, f"{len(failed)} of {len(found)} cases: {failed[:10]}"


@pytest.mark.parametrize("disk", NAMES, indirect=True)
def test_most_single_files_are_not_needed_for_the_verdicts(disk: Disk) -> None:
    """A rule that refuses every copy would be sound as well."""
    whole = answer(disk.data)
    kept = 0
    for path in disk.files:
        with disk.without([path]):
            kept += answer(disk.data).hanging == whole.hanging
    assert kept > 0.7 * len(disk.files)


# --- each witness is necessary ---


def _without(name: str, result: Any) -> Callable[[pytest.MonkeyPatch], None]:
    """A rule that always gives this result."""

    def apply(monkeypatch: pytest.MonkeyPatch) -> None:
        for module in (wholeness, judging, missing):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, lambda *_, **__: result)

    return apply


def _without_time_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the cleaner's offset, every gap counts as the cleaner's work."""
    between = wholeness._between

    def above(before: Segment, after: Segment, cleaned_until: int) -> Iterator[Hole]:
        yield from between(before, after, cleaned_until) if after.base_offset > cleaned_until else ()

    monkeypatch.setattr(wholeness, "_between", above)


def _without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    _without("end_error", None)(monkeypatch)
    _without("unwitnessed", None)(monkeypatch)


# What is taken out, and a disk and a family of cases that show it.
NECESSARY: dict[str, tuple[str, Callable[[Disk], Iterator[Case]], Callable[[pytest.MonkeyPatch], None]]] = {
    "where a log begins": ("clean", missing_groups, _without("start_error", None)),
    "holes between segments": ("clean", missing_groups, _without("holes", [])),
    "what time indexes show": ("compacted", cut_files, _without_time_indexes),
    "where a log ends": ("clean", cut_files, _without_an_end),
    "where a log ends, on a segment": ("clean-v1", missing_groups, _without_an_end),
    "the last seconds before a kill": ("killed", cut_files, _without("restless_error", None)),
    "partitions without a folder": ("clean", missing_groups, _without("_folders", [])),
}


@pytest.mark.parametrize(("disk", "name"), [(NECESSARY[name][0], name) for name in NECESSARY], indirect=["disk"])
def test_each_witness_is_necessary(disk: Disk, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the search finds a live transaction that is called hanging, or one that is not reported."""
    whole = answer(disk.data)
    _, family, take_out = NECESSARY[name]
    take_out(monkeypatch)
    assert any(wrong(disk, whole, family(disk)))
