"""The loop over cases of a table reports every failing case."""

from __future__ import annotations

import pytest

from tests.cases import Cases


def test_every_failing_case_is_reported_with_name_line_and_exception() -> None:
    with pytest.raises(AssertionError) as failed, Cases() as cases:
        for number in (1, 2, 3, 4):
            with cases.case(f"number {number}"):
                assert number % 2 == 1
        with cases.case("not a number"):
            int("x")
    report = str(failed.value)
    assert report.startswith("3 of 5 cases failed:\n")
    assert "  number 2\n" in report and "  number 4\n" in report and "  not a number\n" in report
    assert "number 1" not in report and "number 3" not in report
    assert report.count("assert number %") == 2 and "test_cases.py:" in report
    assert "ValueError: invalid literal" in report
    assert isinstance(failed.value.__cause__, AssertionError), "the first failure, with its whole traceback"


def test_passing_cases_are_quiet() -> None:
    with Cases() as cases:
        for number in (1, 2):
            with cases.case(number):
                assert number


def test_a_table_without_cases_fails() -> None:
    with pytest.raises(AssertionError, match="no case ran"), Cases():
        pass


def test_failures_of_pytest_count() -> None:
    with pytest.raises(AssertionError) as failed, Cases() as cases:
        with cases.case("raises nothing"), pytest.raises(ValueError):
            pass
        with cases.case("fails"):
            pytest.fail("on purpose")
    assert "2 of 2 cases failed" in str(failed.value) and "on purpose" in str(failed.value)


def test_a_skip_skips_the_test() -> None:
    with pytest.raises(pytest.skip.Exception), Cases() as cases, cases.case("skipped"):
        pytest.skip("on purpose")


def test_an_error_between_cases_is_raised_unchanged() -> None:
    with pytest.raises(ZeroDivisionError), Cases():
        _ = 1 / 0


def test_cases_with_the_same_name_are_distinguished() -> None:
    with Cases() as cases:
        with cases.case("same") as first:
            pass
        with cases.case("same") as second:
            pass
    assert (first, second) == ("same", "same (2)")
