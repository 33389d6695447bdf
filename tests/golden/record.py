"""`python -m tests.golden.record`: records the answers of real brokers, of each Kafka version in `VERSIONS`.

Without options it records everything anew, which takes about an hour on a busy machine. `--script` renews the states of
one script and keeps the others. `--missing` records the scripts that have no states yet. `--decode` asks no broker:
after a change to a decoder it renews the decoded values that are stored beside the bytes.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.golden import shape, states, store
from tests.golden.raw import Offered
from tests.golden.store import Recording, State
from tests.prove.conformance import Numbers
from tests.prove.scripts import SCRIPTS, Script
from tests.prove.stage import settings_of
from txnscan.demo.jars import KAFKA_VERSION, NEXT_KAFKA_VERSION, OLD_KAFKA_VERSION

VERSIONS = (OLD_KAFKA_VERSION, KAFKA_VERSION, NEXT_KAFKA_VERSION)
_PARTS = (shape.PART, states.PART)
# A busy machine may miss a short timeout: so often is a script tried, on new brokers each time.
_ROUNDS = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Records, and prints what was recorded. The exit status: 1 where something could not be recorded."""
    parser = argparse.ArgumentParser(prog="tests.golden.record", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--version", action="append", choices=VERSIONS, help="only this one; may be repeated")
    parser.add_argument("--part", action="append", choices=_PARTS, help="only this one; may be repeated")
    parser.add_argument("--script", action="append", help="only the states of this script; may be repeated")
    parser.add_argument("--missing", action="store_true", help="only the states of scripts that have none")
    parser.add_argument("--decode", action="store_true", help="renew decoded values, without brokers")
    options = parser.parse_args(arguments)
    failures: list[str] = []
    parts = options.part or _PARTS
    for kafka in options.version or VERSIONS:
        if options.decode:
            _say(f"{store.write(decoded(store.read(kafka, states.PART)))}")
            continue
        if shape.PART in parts and not options.script and not options.missing:
            with tempfile.TemporaryDirectory(prefix="txnscan-golden-") as directory:
                made = shape.recorded(kafka, Path(directory))
            _say(f"{store.write(made)}: {sum(made.counted().values())} answers")
        if states.PART in parts:
            chosen = [script for script in SCRIPTS if not options.script or script.name in options.script]
            failures += record_states(kafka, chosen, missing=options.missing, keep=bool(options.script))
    for failure in failures:
        _say(failure)
    return 1 if failures else 0


def record_states(kafka: str, scripts: Sequence[Script], *, missing: bool, keep: bool) -> list[str]:
    """Records the states of these scripts. Writes after each script, so that an end in between loses little."""
    offered, kept = _kept(kafka) if missing or keep else ({}, {})
    # Some scripts do not run on every version.
    wanted = [script for script in scripts if any(s.kafka == kafka for s in settings_of(script.on))]
    if missing:
        wanted = [script for script in wanted if script.name not in kept]
    failures: list[str] = []
    for _ in range(_ROUNDS):
        if not wanted:
            break
        failures = []
        failed: set[str] = set()
        directory = Path(tempfile.mkdtemp(prefix="txnscan-golden-"))
        try:
            found: dict[str, list[State]] = {}
            for run in states.record_scripts(kafka, wanted, directory):
                result, offered = run.result, run.offered
                name = result.script.name
                _say(f"{time.strftime('%H:%M:%S')} {name}, {result.setting}: {len(run.states)} states")
                found.setdefault(name, []).extend(run.states)
                if result.differences:
                    failed.add(name)
                    failures += [f"{name}, {result.setting}: {difference}" for difference in result.differences]
                    _say(failures[-1])
                kept[name] = found[name]
                _write_states(kafka, offered, {n: kept[n] for n in kept if n not in failed})
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        wanted = [script for script in wanted if script.name in failed]
    return failures


def decoded(recording: Recording) -> Recording:
    """The same answers, with the values that the decoders make of them now."""
    made, number = [], Numbers()
    for state in recording.states:
        if state.facts["step"] == 1:
            number = Numbers()
        for producer_id, _ in state.facts["clients"].values():
            number(producer_id)
        seen, others = states.replayed(recording.offered, state, number)
        values = {"observed": states.as_text(seen), "others": states.as_text(others)}
        made.append(State(state.label, state.asked, {**state.facts, **values}))
    return Recording(recording.kafka, recording.part, recording.offered, recording.facts, made)


def _kept(kafka: str) -> tuple[Offered, dict[str, list[State]]]:
    """The versions that brokers offered, and the states that are recorded, by script."""
    kept: dict[str, list[State]] = {}
    try:
        recorded = store.read(kafka, states.PART)
    except OSError:
        return {}, kept
    for state in recorded.states:
        kept.setdefault(state.facts["script"], []).append(state)
    return recorded.offered, kept


def _write_states(kafka: str, offered: Offered, kept: dict[str, list[State]]) -> None:
    order = {script.name: number for number, script in enumerate(SCRIPTS)}
    names = sorted((name for name in kept if name in order), key=order.__getitem__)
    ordered = [state for name in names for state in kept[name]]
    if ordered:
        store.write(Recording(kafka, states.PART, offered, {}, ordered))


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
