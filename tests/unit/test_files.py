"""Files named by the user: errors name the option, and no write leaves a partial file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cases import Cases
from txnscan.config import ConfigError
from txnscan.report.files import check_writable, read_text, write_whole


def test_text_survives_a_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    write_whole(path, "ä日\n", "--out")
    assert read_text(path, "PLAN") == "ä日\n"


def test_a_file_is_replaced_without_leftovers(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("a longer text than the new one")
    check_writable(path, "--out")
    write_whole(path, "short", "--out")
    assert path.read_text() == "short" and list(tmp_path.iterdir()) == [path]


def test_checking_a_path_creates_no_file(tmp_path: Path) -> None:
    check_writable(tmp_path / "plan.json", "--out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nothing", "cannot be read: No such file or directory"),
        ("folder", "cannot be read: Is a directory"),
        ("file/below", "cannot be read: Not a directory"),
        ("binary", "is not a text file"),
        ("x" * 300, "cannot be read: File name too long"),
        ("no\n\x1b[2J", r"no\n\x1b[2J cannot be read"),
    ],
    ids=ascii,
)
def test_an_unreadable_file_is_an_error_of_its_option(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "binary").write_bytes(b"\x80\xff")
    with pytest.raises(ConfigError) as complaint:
        read_text(tmp_path / name, "PLAN")
    sentence = str(complaint.value)
    assert sentence.startswith("PLAN: ") and said in sentence and sentence.isprintable()


@pytest.mark.parametrize("name", ["folder", "nothing/plan.json", "file/plan.json", "no\n\x1b[2J/plan.json"], ids=ascii)
def test_an_unwritable_path_is_an_error_before_and_during_writing(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    writes: tuple[Callable[[Path], object], ...] = (
        lambda path: check_writable(path, "--out"),
        lambda path: write_whole(path, "x", "--out"),
    )
    for write in writes:
        with pytest.raises(ConfigError) as complaint:
            write(tmp_path / name)
        sentence = str(complaint.value)
        assert (
            sentence.startswith("--out: ")
            and ("cannot be written" in sentence or "not a regular file" in sentence)
            and sentence.isprintable()
        )


def own_link(link: Path, target: Path) -> None:
    link.symlink_to(target)


def foreign_link(link: Path, target: Path) -> None:
    link.symlink_to(target)
    if os.geteuid() == 0:
        os.lchown(link, _OTHER_USER, _OTHER_USER)


# How the name comes about, and whether the file behind it is replaced.
LINKS: dict[str, tuple[Callable[[Path, Path], None], bool]] = {
    "a link of this user": (own_link, True),
    "a link of another user": (foreign_link, False),
}
_OTHER_USER = 54321


def test_only_links_of_this_user_are_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a shared folder, another user could plant a link to any file of this user."""
    with Cases() as cases:
        for number, (name, (link, is_followed)) in enumerate(LINKS.items()):
            with cases.case(name), monkeypatch.context() as patch:
                path, target = tmp_path / f"plan-{number}.json", tmp_path / f"precious-{number}"
                target.write_text("precious")
                link(path, target)
                if not is_followed and os.geteuid() != 0:
                    patch.setattr(os, "geteuid", lambda: _OTHER_USER)
                uses: tuple[Callable[[Path], object], ...] = (
                    lambda path: check_writable(path, "--out"),
                    lambda path: write_whole(path, "x", "--out"),
                )
                for use in uses:
                    if is_followed:
                        use(path)
                    else:
                        with pytest.raises(ConfigError, match="a link of another user"):
                            use(path)
                assert target.read_text() == ("x" if is_followed else "precious")


def test_links_in_a_circle_are_no_traceback(tmp_path: Path) -> None:
    path = tmp_path / "loop"
    path.symlink_to(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_text(path, "PLAN")
    check_writable(path, "--out")
    write_whole(path, "x", "--out")
    assert path.read_text() == "x" and not path.is_symlink()


def test_a_name_with_a_zero_byte_is_no_traceback() -> None:
    """TOML and properties may have such names, escaped."""
    with pytest.raises(ConfigError, match="zero byte"):
        read_text(Path("a\0b"), "url-file")


def test_a_failed_write_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError):
        write_whole(tmp_path / "folder", "x", "--out")
    assert list(tmp_path.iterdir()) == [tmp_path / "folder"]
