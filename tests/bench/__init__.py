"""What a sweep costs, beside what else there is: `make bench`, or by hand:

    python -m tests.bench                                     all of it, on an idle machine: about half an hour
    python -m tests.bench wide sweep --brokers 5 --partitions 2000 --runs 3
    python -m tests.bench scale --largest 100000

One module for each benchmark: `wide`, `sweep`, `busy`, `cold`, `metadata`, `scale`, `slow`, `costs`, `distribution`.
They run on a cluster at work; with --quiet on one where nothing is live. `busy` has both in one run, and `costs` takes
what single things cost from clusters without anything else.

Ways to do the same work are timed in turn (peer, ours, peer, ours, ...) after a warm-up of each, and every run has to
tell that it did the same work. Ratios are of medians. Nothing fails for being slow: the tables say which targets are
met. The tables go to stdout, progress to stderr, every sample to a JSON file.
"""
