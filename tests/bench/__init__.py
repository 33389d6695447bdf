"""Measure the cost of a sweep against other tools. Run `make bench`, or by hand:

    python -m tests.bench                                     all of it, on an idle machine: about half an hour
    python -m tests.bench wide sweep --brokers 5 --partitions 2000 --runs 3
    python -m tests.bench scale --largest 100000

One module for each benchmark: `wide`, `sweep`, `busy`, `cold`, `metadata`, `scale`, `slow`, `costs`, `distribution`.
They run on a cluster at work. With --quiet the cluster has no live transaction. `busy` measures both clusters in one
run. `costs` measures each single cost on a cluster of its own.

Ways to do the same work are timed in turn (peer, ours, peer, ours, ...) after a warm-up of each. Every run reports its
work, which must be the same. Ratios are of medians. A slow result is no failure: the tables show which targets are met.
The tables go to stdout, progress to stderr, every sample to a JSON file.
"""
