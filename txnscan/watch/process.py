"""The process: one thread for each cluster, the endpoint, the notifier; and the shutdown of all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector

from txnscan.config import ScanConfig
from txnscan.report.metrics import SweepCollector
from txnscan.watch.endpoint import Access, Endpoint
from txnscan.watch.notifier import Notifier, Target
from txnscan.watch.sweeping import ClusterWatch, Store, Sweep, SweptClusters

# Counted from the request to stop. A longer sweep is abandoned: it only reads, and a store has it completely or not at
# all.
SWEEPS_END_S_MAX = 5.0
NOTIFICATIONS_END_S_MAX = 2.0


class Watch:
    """Sweeps these clusters from `start` until `stop`. Raises ConfigError if it cannot listen."""

    def __init__(
        self,
        clusters: Mapping[str, ScanConfig],
        *,
        access: Access,
        interval_s: float,
        sweep: Sweep,
        say: Callable[[str], None],
        targets: Sequence[Target] = (),
        store: Store | None = None,
    ) -> None:
        swept = SweptClusters()
        self._stop = threading.Event()
        registry = CollectorRegistry(auto_describe=False)
        self.endpoint = Endpoint(access, registry, alive=self._is_alive, ready=self._is_ready)
        self._notifier = Notifier(targets, say)
        self.clusters = [
            ClusterWatch(name, config, sweep=sweep, swept=swept, tell=self._notifier.tell, say=say, store=store)
            for name, config in clusters.items()
        ]
        self._threads = [
            threading.Thread(target=one.run, args=(self._stop, interval_s), name=f"txnscan-{one.name}", daemon=True)
            for one in self.clusters
        ]
        registry.register(SweepCollector(lambda: ([one.scraped() for one in self.clusters], self._notifier.notified())))
        # The resources of this process: memory, file descriptors, processor time.
        ProcessCollector(registry=registry)

    def start(self) -> None:
        """Starts serving and sweeping."""
        self.endpoint.start()
        for thread in self._threads:
            thread.start()

    def stop(self) -> bool:
        """Stops within 10 seconds. Returns whether every running sweep finished."""
        self._stop.set()
        until_s = time.monotonic() + SWEEPS_END_S_MAX
        for thread in self._threads:
            thread.join(max(0.0, until_s - time.monotonic()))
        self._notifier.close(NOTIFICATIONS_END_S_MAX)
        self.endpoint.close()
        return not any(thread.is_alive() for thread in self._threads)

    def _is_alive(self) -> bool:
        """Whether the thread of every cluster runs and its sweep is not overdue."""
        # Each is asked: an overdue sweep counts as failed from here on.
        overdue = [one.is_overdue() for one in self.clusters]
        return all(thread.is_alive() for thread in self._threads) and not any(overdue)

    def _is_ready(self) -> bool:
        """Whether every cluster was tried. A cluster that cannot be swept must not prevent scrapes of the others."""
        return all(one.attempted for one in self.clusters)
