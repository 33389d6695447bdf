"""What people see of a sweep."""

from __future__ import annotations

import io
from typing import Any, Literal

from rich.console import Console

from txnscan.report.json import scan_object
from txnscan.report.sweep import print_sweep


def shown(found: Any, *, every: bool = False, terminal: bool = False, verbose: bool = True) -> str:
    output = io.StringIO()
    colors: Literal["standard"] | None = "standard" if terminal else None
    console = Console(file=output, width=300, highlight=False, force_terminal=terminal, color_system=colors)
    print_sweep(console, found if isinstance(found, dict) else scan_object(found), every=every, verbose=verbose)
    return output.getvalue()
