"""Histories of a simulated cluster, searched for a verdict that the truth contradicts.

    python -m tests.prove.histories

Its parts: small worlds in every way up to their bounds, in six parts; every obligation dropped, where the search must
find an innocent transaction accused; larger worlds at random; the same with several sweeps, which know of each other;
the same with a cluster that is restored from a copy; and the same with an apply, whose markers must do no harm. Prints
the figures at the end. Exits with 1 if a verdict is wrong, if a marker did harm, or if an obligation turns out not to
be needed. A random history of one sweep is run again by `python -m tests.sim --world WORLD --seed SEED`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

from tests.sim.check import Figures
from tests.sim.exhaustive import exhaustive
from tests.sim.obligations import DROPPED, with_all
from tests.sim.restoring import wander_restored
from tests.sim.scenarios import ARENAS, SMALL, WIDE, Small
from tests.sim.wander import Resolved, wander, wander_again, wander_and_apply

# Random histories in one share.
_SEEDS = 2_000
# Searches random histories of a world from a seed on, so many. Returns the figures, and the seeds with a wrong result.
Search = Callable[[str, int, int], tuple[Figures, list[int]]]
# The small worlds take most of the time, so they are several parts, each with every sixth world.
OF_SMALL = {f"small-{first + 1}": SMALL[first::6] for first in range(6)}
PARTS = ("obligations", *OF_SMALL, "random", "again", "restored", "applies")


def searched(small: Small, bound: tuple[int, int]) -> tuple[Figures, float]:
    """The histories of a small world up to a bound, and how long the search took, in seconds."""
    began_s = time.monotonic()
    return exhaustive(small, bound), time.monotonic() - began_s


def needed(name: str) -> tuple[Figures, Figures]:
    """A search without an obligation, until a verdict is wrong, and the same search with it, to its end."""
    arena, dropped = ARENAS[name], DROPPED[name]
    without = exhaustive(arena, arena.brief, dropped, stop=lambda figures: not right(figures))
    return without, exhaustive(arena, arena.brief, with_all(name))


def wandered(world: str, first_seed: int, count: int) -> tuple[Figures, list[int]]:
    """Random histories of a world, and the seeds with a wrong verdict."""
    total, failing = Figures(), []
    for seed in range(first_seed, first_seed + count):
        figures, _ = wander(WIDE[world], seed)
        total.add(figures)
        if figures.wrong:
            failing.append(seed)
    return total, failing


def wandered_again(world: str, first_seed: int, count: int) -> tuple[Figures, list[int]]:
    """The same with several sweeps in each history, which use each other's results."""
    total, failing = Figures(), []
    for seed in range(first_seed, first_seed + count):
        figures, _ = wander_again(WIDE[world], seed)
        total.add(figures)
        if figures.wrong:
            failing.append(seed)
    return total, failing


def restored(world: str, first_seed: int, count: int) -> tuple[Figures, list[int]]:
    """The same with a cluster that is restored from a copy."""
    total, failing = Figures(), []
    for seed in range(first_seed, first_seed + count):
        found = wander_restored(WIDE[world], seed)
        total.add(found.figures)
        if found.figures.wrong or any(one.torn or one.verdict for one in found.wrong_unnoticed):
            failing.append(seed)
    return total, failing


def applied(world: str, first_seed: int, count: int) -> tuple[Resolved, list[int]]:
    """Random histories of a world with an apply, and the seeds with a harmful marker."""
    total, failing = Resolved(), []
    for seed in range(first_seed, first_seed + count):
        found = wander_and_apply(WIDE[world], seed)
        total.add(found)
        if found.harm:
            failing.append(seed)
    return total, failing


def right(figures: Figures) -> bool:
    """Whether no verdict was wrong."""
    return not (figures.false_accusations or figures.torn or figures.overlooked or figures.mistaken)


def in_words(figures: Figures) -> str:
    """The figures on one line."""
    return (
        f"{figures.histories:,} histories, {figures.accusations:,} accusations, {figures.false_accusations} false, "
        f"{figures.torn} outcomes wrong, {figures.overlooked} overlooked, {figures.mistaken} incidents mistaken"
    )


def say(text: str) -> None:
    """Reports progress on stderr."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def prove_small(pool: ProcessPoolExecutor, worlds: Sequence[Small], brief: bool) -> Figures:
    """Searches these small worlds, exhaustively up to their bounds."""
    total = Figures()
    # The deepest searches first: what is left at the end is short.
    tasks = [(one, bound) for one in worlds for bound in ((one.brief,) if brief else one.bounds)]
    tasks.sort(key=lambda task: sum(task[1]), reverse=True)
    for (small, (before, during)), (figures, took_s) in zip(
        tasks, pool.map(searched, *zip(*tasks, strict=True)), strict=True
    ):
        say(
            f"{small.scenario.name}, {before} events before the sweep and {during} during it: "
            f"{figures.worlds:,} worlds, {in_words(figures)} ({took_s:.0f} s)"
        )
        for history, wrong in figures.wrong:
            say(f"WRONG: {wrong}\n  {history}")
        total.add(figures)
    return total


def prove_obligations(pool: ProcessPoolExecutor) -> dict[str, bool]:
    """For each obligation, whether it is both necessary and sufficient in its world."""
    shown = {}
    for name, (without, with_it) in zip(DROPPED, pool.map(needed, DROPPED), strict=True):
        before, during = ARENAS[name].brief
        shown[name] = not right(without) and right(with_it)
        say(
            f"without {name} ({DROPPED[name].lacks}): {in_words(without)}; with it, all up to {before} events before "
            f"the sweep and {during} during it: {in_words(with_it)}"
        )
    return shown


def prove_at_random(pool: ProcessPoolExecutor, count: int, first_seed: int) -> Figures:
    """Random histories of the larger worlds, the same number of each."""
    total = Figures()
    shares = list(_shares(count // len(WIDE), first_seed))
    for world in WIDE:
        figures, began_s = Figures(), time.monotonic()
        for part, failing in pool.map(wandered, *zip(*((world, *share) for share in shares), strict=True)):
            figures.add(part)
            for seed in failing:
                say(f"WRONG: python -m tests.sim --world {world} --seed {seed}")
        seeds = f"seeds {first_seed} to {first_seed + count // len(WIDE) - 1}"
        say(f"{world}, {seeds}: {in_words(figures)} ({time.monotonic() - began_s:.0f} s)")
        total.add(figures)
    return total


def prove_again(pool: ProcessPoolExecutor, count: int, first_seed: int) -> Figures:
    """Random histories of the larger worlds with several sweeps, the same number of each."""
    return _prove_each(pool, count, first_seed, wandered_again, "wander_again", "several sweeps")


def prove_restored(pool: ProcessPoolExecutor, count: int, first_seed: int) -> Figures:
    """The same with a cluster that is restored from a copy."""
    return _prove_each(pool, count, first_seed, restored, "wander_restored", "restored from a copy")


def _prove_each(
    pool: ProcessPoolExecutor, count: int, first_seed: int, search: Search, repeat: str, what: str
) -> Figures:
    total = Figures()
    shares = list(_shares(count // len(WIDE), first_seed))
    for world in WIDE:
        figures, began_s = Figures(), time.monotonic()
        for part, failing in pool.map(search, *zip(*((world, *share) for share in shares), strict=True)):
            figures.add(part)
            for seed in failing:
                say(f"WRONG: {repeat}(WIDE[{world!r}], {seed})")
        say(f"{world}, {what}: {in_words(figures)} ({time.monotonic() - began_s:.0f} s)")
        total.add(figures)
    return total


def prove_applying(pool: ProcessPoolExecutor, count: int, first_seed: int) -> Resolved:
    """Random histories of the larger worlds with two sweeps and an apply, the same number of each."""
    total = Resolved()
    shares = list(_shares(count // len(WIDE), first_seed))
    for world in WIDE:
        of_world, began_s = Resolved(), time.monotonic()
        for part, failing in pool.map(applied, *zip(*((world, *share) for share in shares), strict=True)):
            of_world.add(part)
            for seed in failing:
                say(f"HARM: wander_and_apply(WIDE[{world!r}], {seed})")
        say(f"{world}, with an apply: {markers_in_words(of_world)} ({time.monotonic() - began_s:.0f} s)")
        total.add(of_world)
    return total


def markers_in_words(found: Resolved) -> str:
    """The written markers and the refusals, on one line."""
    return (
        f"{found.written:,} markers written, {len(found.harm)} did harm, {found.refused:,} transactions refused; "
        f"{found.accepted:,} accepted unknown outcomes were commits of which nothing was left, and {found.undated:,} "
        "completed commits had records that no date tells apart from them"
    )


def _shares(count: int, first_seed: int) -> Iterator[tuple[int, int]]:
    for start in range(0, count, _SEEDS):
        yield first_seed + start, min(_SEEDS, count - start)


def report(lines: Iterable[str]) -> None:
    """Prints the results on stdout."""
    for line in lines:
        print(line)  # noqa: T201


def main(arguments: list[str] | None = None) -> int:
    """Runs the command, and returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.prove.histories", description=__doc__)
    parser.add_argument("--random", type=int, default=48_000, metavar="N", help="random histories (default: 48000)")
    parser.add_argument(
        "--applies", type=int, default=24_000, metavar="N", help="random histories with an apply (default: 24000)"
    )
    parser.add_argument(
        "--again", type=int, default=12_000, metavar="N", help="random histories of several sweeps (default: 12000)"
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--processes", type=int, default=2, help="how many to use (default: 2)")
    parser.add_argument("--only", choices=PARTS, action="append", help="run this part alone; may be repeated")
    parser.add_argument("--brief", action="store_true", help="small worlds up to smaller bounds")
    options = parser.parse_args(arguments)
    began_s = time.monotonic()
    said, good = [], []
    with ProcessPoolExecutor(options.processes) as pool:
        for part in options.only or PARTS:
            if part == "obligations":
                obligations = prove_obligations(pool)
                said.append(f"obligations shown to be needed: {sum(obligations.values())} of {len(obligations)}")
                good.append(all(obligations.values()))
            elif part in OF_SMALL:
                small = prove_small(pool, OF_SMALL[part], options.brief)
                said.append(f"{part}, exhaustively: {in_words(small)}, in {small.worlds:,} worlds")
                good.append(right(small))
            elif part == "random":
                wide = prove_at_random(pool, options.random, options.seed)
                said.append(f"larger worlds, at random, from seed {options.seed}: {in_words(wide)}")
                good.append(right(wide))
            elif part == "again":
                again = prove_again(pool, options.again, options.seed)
                known = f"{options.again:,} histories of several sweeps that know of each other, at random"
                said.append(f"{known}: {in_words(again)}")
                good.append(right(again))
            elif part == "restored":
                after = prove_restored(pool, options.again, options.seed)
                said.append(f"{options.again:,} histories of a restored cluster, at random: {in_words(after)}")
                good.append(right(after))
            else:
                markers = prove_applying(pool, options.applies, options.seed)
                said.append(f"{options.applies:,} histories with an apply, at random: {markers_in_words(markers)}")
                good.append(not markers.harm)
    report((*said, f"histories in {time.monotonic() - began_s:.0f} s"))
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
