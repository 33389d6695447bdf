"""Which tests are slow, and why: `make test` leaves them out, `make test-all` runs them alone.

`make test-repeats` runs the slow tests that repeat what another test shows, or that `make prove` does at length. CI
leaves them out.

A test belongs here if it breaks brokers, starts a cluster or a Spark session of its own, repeats on a second store or
version what the fast tier shows once, or takes a process for half a minute. Its behaviour must also have a fast test,
unless only a slow one can show it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

# Worlds with so many histories that CI takes histories of theirs at random alone.
LARGE_WORLDS = (
    "a partition that moves, 8",
    "a coordinator that moves, 4_0",
    "a coordinator that moves, 8",
    "a coordinator that was cut off, 17",
    "a partition offline while its transaction ends, 4",
    "brokers that crash and hang, 4",
    "a fence that is not written, 9",
    "a fence that is not written, 32",
    "a client that changes between v1 and v2, with dates, 21",
    "a coordinator that loads a part, 11",
    "a coordinator that loads a part, 15",
    "a coordinator that loads a part, transactions v2, 11",
    "a coordinator that moves, watched, 4",
    "a partition that moves, 4",
    "appends that time out, 4",
    "appends that time out, 8",
    "appends that time out, transactions v2, 4",
    "late data, verified, 3",
    "late data, watched, 3",
    "one broker, watched, 1",
    "late data, 3",
    "one broker, 1",
)

# For histories at random each question takes a minute of a core. `make test` has those of these worlds.
FAST_WORLDS = ("three-brokers", "v1-unverified")
_RANDOM = (
    "tests/search/test_applying.py::test_no_random_history_has_a_harmful_marker",
    "tests/search/test_histories.py::test_no_random_history_has_a_wrong_verdict",
    "tests/search/test_several_sweeps.py::test_no_sweep_with_earlier_knowledge_is_wrong",
    "tests/search/test_simulator.py::test_acknowledged_records_are_never_lost_and_each_epoch_has_one_leader",
)

# By the beginning of a test's id: a file, a function, or one of its cases. A star stands for any text.
SLOW: Mapping[str, str] = MappingProxyType(
    {
        "tests/brokers/test_authorisation.py": "a sweep for each gap in ACLs",
        "tests/brokers/test_commands.py::test_kafkas_tool_and": "Kafka's own tool, many times",
        "tests/brokers/test_commands.py::test_every_command_and": "Kafka's own tool, many times",
        "tests/brokers/test_before_stop_real.py": "brokers of its own, which stop",
        "tests/brokers/test_connect_interrupts.py": "a server of Spark Connect",
        "tests/brokers/test_conformance.py::test_a_": "real brokers of three versions beside the simulator",
        "tests/brokers/test_conformance.py::test_late_data": "real brokers of three versions beside the simulator",
        "tests/brokers/test_demo_brokers.py": "brokers that stop, pause and fail to start",
        "tests/brokers/test_demo_story.py": "the whole demo",
        "tests/brokers/test_explain_log.py": "a broker of its own, with short timeouts",
        "tests/brokers/test_explain_share.py": "share groups in processes of their own",
        "tests/brokers/test_explain_tiered.py": "a broker with remote storage",
        "tests/brokers/test_explain_prepare.py": "a broker that stops while a transaction ends",
        "tests/brokers/test_faults.py": "brokers that are killed in the middle of a sweep",
        "tests/brokers/test_gate_faults.py": "brokers that stop and pause",
        "tests/brokers/test_install.py": "the wheel, installed in empty environments",
        "tests/brokers/test_joined_commit_real.py": "a broker that stops while transactions end",
        "tests/brokers/test_lost_log_end.py": "a coordinator whose log loses its end",
        "tests/brokers/test_lost_markers.py": "a broker that stops while transactions end",
        "tests/brokers/test_lost_records.py": "a log that forgets, on brokers of its own",
        "tests/brokers/test_lowered_timeout.py": "a broker that starts again with another setting",
        "tests/brokers/test_moved_start_real.py": "replicas that move, and a broker that hangs",
        "tests/brokers/test_no_listener.py": "a cluster whose brokers have different listeners",
        "tests/brokers/test_no_writes.py": "a broker that stops, and clusters of one broker",
        "tests/brokers/test_nodes.py": "a Spark cluster whose nodes have a Python of their own",
        "tests/brokers/test_notebook.py": "notebooks in a kernel and a Spark session of their own",
        "tests/brokers/test_offline_real.py": "copies of the disks of brokers that were stopped",
        "tests/brokers/test_old_brokers.py": "brokers of Kafka 3.5.2",
        "tests/brokers/test_outage.py": "a broker that stops while transactions end",
        "tests/brokers/test_prove_watching.py": "a watch with faults under load",
        "tests/brokers/test_rolling_restart_real.py": "rolling restarts of three brokers under load",
        "tests/brokers/test_restored_real.py": "brokers that stop and get another state of their disks",
        "tests/brokers/test_spark_streaming.py": "streaming queries in a Spark session of their own",
        "tests/brokers/test_stale_metadata.py": "a broker that is cut off from the controller",
        "tests/brokers/test_connections.py::test_executors": "a sweep through Spark, with tables",
        "tests/brokers/test_sweep.py::test_sweeps_through_spark": "a sweep through Spark, with tables",
        "tests/brokers/test_sweep.py::test_sweep_and_show_print_the_same_object[spark]": "a Spark session of its own",
        "tests/brokers/test_undelivered.py": "stops a broker",
        "tests/brokers/test_silent_broker.py": "a broker that is paused",
        "tests/brokers/test_unreplicated_end.py": "a follower that is slow on purpose",
        "tests/brokers/test_wire_real.py": "records the answers of real brokers again",
        "tests/brokers/test_zookeeper.py": "brokers of Kafka 3.5.2 with ZooKeeper, which stop",
        "tests/brokers/test_connections.py::test_key_stores": "a connection for each kind of store",
        "tests/commands/test_check_and_sweep.py::test_check_and_sweep_agree_on_every_engine": "every engine and store",
        "tests/commands/test_crowds.py": "crowds of brokers, until the limit",
        "tests/commands/test_surroundings.py::test_in_a_restricted": "a process for each restriction",
        "tests/commands/test_timeout.py::test_a_sweep_ends": "a broker that is slow in each stage",
        "tests/commands/test_bench.py::test_a_cluster_at_work": "a benchmark, small",
        "tests/commands/test_bench.py::test_a_long": "a benchmark, small",
        "tests/commands/test_bench.py::test_the_memory_of_sparks": "a benchmark, small",
        "tests/commands/test_bench.py::test_the_wide_read": "a benchmark, small",
        "tests/commands/test_distribution.py::test_an_executor": "executors in processes of their own",
        "tests/commands/test_docs_site.py::test_a_strict": "the site, built once more",
        "tests/commands/test_helm_chart.py::test_rendered": "Helm, which may have to be compiled",
        "tests/commands/test_lock.py::test_only_one_process*[spark": "the second store",
        "tests/commands/test_lock.py::test_tables_of_a_catalog": "tables in a catalog of Spark",
        "tests/commands/test_lock.py::test_session_settings": "a Spark session",
        "tests/commands/test_s3.py::test_two_processes": "two processes that race for a minute",
        "tests/commands/test_wire_cluster.py::test_by_hand": "a wire-level cluster in a process of its own",
        "tests/commands/test_wire_cluster.py::test_kafkas_own_tool": "Kafka's own tool",
        "tests/unit/test_golden_coordinators.py::test_kafkas_classes": "Java's compiler, with Kafka's jars",
        "tests/brokers/test_blocking_real.py": "transactions that must grow old",
        "tests/brokers/test_commands.py::test_a_silent": "a broker that is paused",
        "tests/brokers/test_disk_real.py::test_a_dirty": "a log cleaner that has to run",
        "tests/brokers/test_explain_real.py::test_groups_and_topics_under": "groups under traffic",
        "tests/brokers/test_running_brokers.py::test_a_transaction_ending*[RUNNING": "each order of files once more",
        "tests/commands/test_watch.py::test_dead_or_silent": "clusters that are silent until the limit",
        "tests/commands/test_timeout.py::test_a_slow_broker": "a broker that is slow in each stage",
        "tests/search/test_incomplete_disks.py::test_some*[clean-v1": "disks of one more cluster",
        "tests/search/test_incomplete_disks.py::test_some*[compacted": "disks of one more cluster",
        "tests/search/test_incomplete_disks.py::test_some*[killed": "disks of one more cluster",
        "tests/search/test_incomplete_disks.py::test_some*[two-brokers": "disks of one more cluster",
        "tests/spark/test_changed_tables.py::test_delta_itself": "tables in a catalog of Spark",
        "tests/spark/test_contract.py::test_ten_clusters": "ten writers at once, with all retries",
        "tests/spark/test_open.py::test_a_checkpoint_of": "a table with many commits",
        "tests/spark/test_open.py::test_spark_opens*CLUSTER BY": "a table that Spark writes anew",
        "tests/spark/test_files_alone.py": "tables that Spark reads twice",
        "tests/spark/test_write_through_spark.py": "the second store",
        "tests/tables/test_large_files.py::test_a_sweep_merges": "large files",
        "tests/tables/test_large_logs.py::test_a_month": "a log of a month and a year",
        "tests/unit/test_golden_states.py::test_decoders*[3.5.2": "all recorded answers of one more version",
        "tests/unit/test_golden_states.py::test_decoders*[4.3.1": "all recorded answers of one more version",
        "tests/unit/test_hostile_peers.py::test_an_http_answer_sent_byte": "peers that drip until the limit",
        "tests/search/test_incomplete_disks.py::test_each": "searches among all cases",
        "tests/search/test_incomplete_disks.py::test_every": "searches of minutes",
        "tests/search/test_incomplete_disks.py::test_most": "a disk for each of its files",
        "tests/search/test_applying.py::test_random_histories": "histories of all worlds",
        "tests/search/test_histories.py::test_random_histories": "histories of all worlds",
        "tests/search/test_several_sweeps.py::test_no_position": "many sweeps of one cluster",
        "tests/search/test_stopping.py": "a search for each condition",
        "tests/spark/test_planted_through_spark.py": "the second store",
        "tests/tables/test_hostile_tables.py": "a process for each kind of hostile file",
        "tests/tables/test_large_files.py::test_no_use": "a process for each kind of large file",
        "tests/tables/test_large_files.py::test_a_page": "a process for each kind of large file",
        "tests/unit/test_prove_parts.py::test_the_parts": "the imports of the whole package",
        "tests/tables/test_large_logs.py::test_opening": "a process for each kind of large log",
        "tests/spark/test_catalog_through_connect.py": "a server of Spark Connect",
        "tests/spark/test_changed_tables.py::test_tables_that_users": "many changes of tables, each with writes",
        "tests/spark/test_check_and_sweep_spark.py": "sweeps through Spark, with tables",
        "tests/spark/test_contract.py::*[spark": "the second store",
        "tests/spark/test_interrupts.py::test_sparks_own": "sweeps that wait for an interrupt",
        "tests/spark/test_session.py::test_the_archive": "sessions in processes of their own",
        "tests/spark/test_versions.py::*[spark": "the second store",
        "tests/spark/test_jobs.py::test_each_job": "sweeps through Spark, with tables",
        "tests/spark/test_offline.py": "offline files, read by executors",
        "tests/spark/test_python_of_sessions.py::test_an_ordinary": "sessions in processes of their own",
        "tests/spark/test_python_of_sessions.py::test_the_data_source": "a sweep as a data source",
        "tests/spark/test_spark_source.py::test_a_batch": "a sweep as a data source",
        "tests/spark/test_spark_source.py::test_each_query": "a sweep as a data source",
        "tests/spark/test_spark_source.py::test_each_micro_batch": "a stream of sweeps",
        "tests/spark/test_spark_source.py::test_the_error": "a sweep as a data source",
        "tests/spark/test_sweep_clusters.py": "several sweeps through Spark",
        "tests/spark/test_stores.py": "both stores in turns",
        "tests/spark/test_views.py": "every view and query through Spark",
        "tests/brokers/test_mcp.py::test_without_tables": "a process for each set of options",
        "tests/brokers/test_resolve.py::test_a_killed_apply*[killed-before-send-send": "a process that dies once more",
        "tests/brokers/test_running_brokers.py::test_a_transaction_ending*[running-1": "each order of files once more",
        "tests/brokers/test_sweep.py::test_ten_sweeps": "ten sweeps under traffic",
        "tests/commands/test_check_and_sweep.py::test_check_claims": "brokers that are silent until the limit",
        "tests/commands/test_python_page.py::test_the_functions": "a process for each command of the page",
        "tests/commands/test_s3.py": "a server of S3",
        "tests/commands/test_timeout.py::test_the_command_prints": "a broker that is slow in each stage",
        "tests/commands/test_watch.py::test_with_tables": "a watch that starts twice",
        "tests/search/test_forgotten_state.py::test_kept_leader": "histories of several worlds",
        "tests/spark/test_changed_tables.py::test_an_expression": "sessions that read what must not be read",
        "tests/spark/test_expectations.py": "every expectation through Spark",
        "tests/tables/test_killed.py": "a process for each commit of a write",
        "tests/unit/test_dripping_brokers.py": "brokers that drip until the limit, at every step",
        "tests/unit/test_hostile_peers.py::test_a_decompression_bomb": "a gigabyte that is refused",
        "tests/unit/test_offline_memory.py": "segments that are larger than the memory",
        "tests/unit/test_patterns.py::test_a_pattern_that_backtracks": "patterns that run until the limit",
    }
)

# Slow tests that repeat what another test shows on a version, a store, a world or a number, by the beginning of an id.
REPEATS: Mapping[str, str] = MappingProxyType(
    {
        "tests/brokers/test_conformance.py::test_a_*[3.5.2": "`make prove` has conformance of each version",
        "tests/brokers/test_conformance.py::test_a_*[4.4.0": "`make prove` has conformance of each version",
        "tests/brokers/test_conformance.py::test_late_data*[3.5.2": "`make prove` has conformance of each version",
        "tests/brokers/test_conformance.py::test_late_data*[4.4.0": "`make prove` has conformance of each version",
        "tests/brokers/test_demo_story.py::test_the_demo_describes*[4.4.0": "the whole demo on one more version",
        "tests/brokers/test_install.py::test_pip_installs_a_git": "one more way to install the package",
        "tests/brokers/test_install.py::test_uvx": "one more way to install the package",
        "tests/brokers/test_prove_watching.py::test_many_sweeps": "`make prove` has a longer watch",
        "tests/commands/test_bench.py::test_a_long_history": "`make bench` has a longer history",
        "tests/search/test_incomplete_disks.py::test_every*[cut_files-two-brokers": "the search of another cluster",
        "tests/search/test_incomplete_disks.py::test_every*[missing_pairs": "searches for pairs of files",
        "tests/search/test_obligations.py::*[coverage": "`make prove` has a longer search",
        "tests/search/test_obligations.py::*[leader": "`make prove` has a longer search",
        "tests/search/test_obligations.py::*[newest": "`make prove` has a longer search",
        "tests/spark/test_contract.py::test_ten_clusters*[spark": "the second store",
        "tests/spark/test_interrupts.py::test_sparks_own*[cancelJob": "one more means of Spark",
        **{
            f"tests/search/test_histories.py::test_no_history_of_a_small_world*[{world}]": "`make prove` has them all"
            for world in LARGE_WORLDS
        },
    }
)

# Unit tests that take more than a second, of a core or of waiting, by `--durations`. `make test` runs them.
# `make test-unit` leaves them out, so that it takes a minute on two cores: the others take 80 s of a core, and wait for
# 20 s.
LENGTHY: Mapping[str, str] = MappingProxyType(
    {
        "tests/unit/test_apply.py::test_each_marker_is_sent_at_most": "every order of failures in several applies",
        "tests/unit/test_apply.py::test_no_pair_of_failing": "every pair of failures",
        "tests/unit/test_capacity.py::test_a_busy_cluster": "a simulated cluster at work",
        "tests/unit/test_capacity.py::test_a_sweep_costs_the_predicted": "simulated sweeps of many brokers",
        "tests/unit/test_crowd_work.py::test_the_work_grows": "thousands of simulated brokers",
        "tests/unit/test_demo_jars.py::test_a_failed_download": "Java, without a network",
        "tests/unit/test_executor_python.py::test_the_sent_packages": "a Python of its own, with all imports of tasks",
        "tests/unit/test_explain_errors.py::test_a_whole_log": "texts of many kilobytes",
        "tests/unit/test_golden_states.py::test_decoders_and_simulator": "all recorded answers of three versions",
        "tests/unit/test_hostile_files.py::test_a_hostile_file": "every hostile file",
        "tests/unit/test_hostile_peers.py::test_a_hostile_answer": "peers that are looked at until the limit",
        "tests/unit/test_hostile_peers.py::test_only_open_producers": "many producers, with the memory they take",
        "tests/unit/test_hostile_peers.py::test_the_look_at_a_port": "peers that drip until the limit",
        "tests/unit/test_hostile_peers.py::test_the_mechanisms": "peers that are looked at until the limit",
        "tests/unit/test_lineage.py::test_reads_that_confirm": "a thousand reads of one log",
        "tests/unit/test_offline_transaction_log.py::test_damage_never": "random damage of disks",
        "tests/unit/test_offline_walk.py::test_columns_equal": "random log segments, read twice",
        "tests/unit/test_outcome.py::test_no_log": "every gap in random logs",
        "tests/unit/test_outcome.py::test_no_remaining_log": "every gap in random logs",
        "tests/unit/test_outcome.py::test_under_v2_no_remaining": "every gap in random logs",
        "tests/unit/test_patterns.py::test_every_use_of_a_pattern": "patterns that run until the limit",
        "tests/unit/test_plan_file.py::test_a_change_of_one": "random changes of a plan",
        "tests/unit/test_properties.py::test_a_security_setting_with": "every setting without each letter",
        "tests/unit/test_replay.py::test_a_log_is_weighed": "logs of tables with a thousand actions",
        "tests/unit/test_who_waits_agree.py::test_every_output_agrees_on_which": "all outputs, all offsets",
    }
)


def repeated_reason(nodeid: str) -> str | None:
    """Why this test repeats another; None if it does not."""
    return _reason(REPEATS, nodeid)


def slow_reason(nodeid: str) -> str | None:
    """Why this test is slow; None if it is not slow."""
    if nodeid.startswith(_RANDOM) and not nodeid.endswith(tuple(f"[{world}]" for world in FAST_WORLDS)):
        return "histories at random of one more world"
    return _reason(SLOW, nodeid)


def lengthy_reason(nodeid: str) -> str | None:
    """Why this unit test takes long; None if it does not."""
    return _reason(LENGTHY, nodeid)


def _reason(table: Mapping[str, str], nodeid: str) -> str | None:
    return next((why for beginning, why in table.items() if _pattern(beginning).match(nodeid)), None)


@cache
def _pattern(beginning: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, beginning.split("*"))))
