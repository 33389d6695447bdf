"""The exit status of `--fail-on`, by the numbers of a sweep."""

from __future__ import annotations

from itertools import chain, combinations

from tests.builders import NOW_MS, judged, scan, unobserved, view
from tests.cases import Cases
from txnscan.report.findings import FailOn, Findings
from txnscan.report.json import scan_object
from txnscan.waiting.impact import Impact
from txnscan.waiting.owner import Owner

PROVEN, HANGING, INCOMPLETE = FailOn
# The numbers of a sweep, and the exit status of proven, hanging and incomplete alone.
TABLE: tuple[tuple[str, Findings, tuple[int, int, int]], ...] = (
    ("nothing", Findings(0, 0, 0, True), (0, 0, 0)),
    ("hanging, and not late", Findings(2, 0, 0, True), (3, 0, 0)),
    ("hanging and late", Findings(2, 1, 0, True), (3, 3, 0)),
    ("a commit in danger", Findings(0, 0, 1, True), (3, 3, 0)),
    ("not all observed", Findings(0, 0, 0, False), (0, 0, 4)),
    ("hanging, and not all observed", Findings(1, 0, 0, False), (3, 0, 4)),
    ("late, and not all observed", Findings(1, 1, 0, False), (3, 3, 4)),
)


def test_each_value_has_its_status_and_the_last_line_names_it() -> None:
    with Cases() as cases:
        for name, findings, expected in TABLE:
            with cases.case(name):
                assert tuple(findings.status([one]) for one in FailOn) == expected
                said = findings.sentence()
                assert (said is not None) == any(expected)
                for one, status in zip(FailOn, expected, strict=True):
                    assert said is None or f"{status} with --fail-on {one} (" in said


def test_hanging_outranks_incomplete() -> None:
    several = chain.from_iterable(combinations(FailOn, count) for count in (2, 3))
    for wanted in several:
        for _, findings, alone in TABLE:
            each = [alone[list(FailOn).index(one)] for one in wanted]
            assert findings.status(wanted) == (3 if 3 in each else max(each))
    assert Findings(1, 1, 1, False).status([]) == 0


def test_a_sweep_and_its_object_have_the_same_findings() -> None:
    young = judged(view("Empty", 9), last_timestamp_ms=NOW_MS, first_seen_ms=NOW_MS)
    unread = scan(
        young,
        impacts={
            young.observation.transaction_key: Impact(None, None, Owner(None, None, None), readers_error="no such file")
        },
    )
    for found in (scan(), scan(judged(view("Empty", 9)), young), scan(partitions_failed=1), unread):
        assert Findings.of(found) == Findings.of_object(scan_object(found))
    assert Findings.of(scan(judged(view("Empty", 9)), young)) == Findings(2, 1, 0, True)
    assert unread.complete and not Findings.of(unread).complete
    odd = scan_object(scan(errors=(unobserved("read", "x", 1),)))
    odd["sweep"]["complete"] = True
    assert not Findings.of_object(odd).complete
