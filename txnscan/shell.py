"""Commands that people copy into a shell: every value is quoted."""

from __future__ import annotations

import shlex
from collections.abc import Iterator


def command(*words: str, **options: object) -> str:
    """A command. words: as they are, such as the program and options that are quoted already. options: see
    `options_of`.
    """
    return " ".join(filter(None, (*words, options_of(**options))))


def options_of(**options: object) -> str:
    """Options by their names, in order: `topic="t"` is `--topic t`, True an option without a value. None and False are
    left out, and a tuple repeats the option.
    """
    return " ".join(word for name, value in options.items() for word in _words(f"--{name.replace('_', '-')}", value))


def _words(option: str, value: object) -> Iterator[str]:
    if value is True:
        yield option
    elif isinstance(value, tuple):
        for one in value:
            yield from _words(option, one)
    elif value is not None and value is not False:
        yield f"{option} {shlex.quote(str(value))}"
