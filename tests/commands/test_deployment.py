"""The files of docs/deployment are valid for Kubernetes, Databricks, Airflow, cron and txnscan."""

from __future__ import annotations

import ast
import fcntl
import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from tests.cases import Cases
from tests.kubernetes import CUSTOM, by_name, excess_rights, validate
from tests.kubernetes import pods as pods_of
from tests.process import ROOT
from txnscan.cli.app import app
from txnscan.config import parse_duration_ms
from txnscan.tables.views import VIEWS
from txnscan.watch.clusters import read_clusters

FOLDER = ROOT / "docs" / "deployment"
KUBERNETES = FOLDER / "kubernetes"
BOARD: dict[str, Any] = json.loads((FOLDER / "databricks" / "txnscan.lvdash.json").read_text("utf-8"))


@cache
def objects() -> dict[str, dict[str, Any]]:
    """The Kubernetes objects, by kind and name."""
    return by_name(
        one for path in sorted(KUBERNETES.glob("*.yaml")) for one in yaml.safe_load_all(path.read_text("utf-8"))
    )


def pods() -> dict[str, dict[str, Any]]:
    """The pods that they start."""
    return pods_of(objects())


@cache
def bundle() -> dict[str, Any]:
    """The Databricks bundle."""
    made: dict[str, Any] = yaml.safe_load((FOLDER / "databricks" / "databricks.yml").read_text("utf-8"))
    return made


# --- Kubernetes


def test_an_object_matches_the_schemas_of_kubernetes() -> None:
    with Cases() as cases:
        for name in sorted(objects()):
            with cases.case(name):
                validate(objects()[name])


def test_an_unknown_kubernetes_field_is_detected() -> None:
    import kubernetes_validate

    spoilt = json.loads(json.dumps(objects()["CronJob txnscan-sweep"]))
    spoilt["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["comand"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        validate(spoilt)


def test_a_pod_is_not_root_and_has_minimal_rights() -> None:
    with Cases() as cases:
        for name, pod in pods().items():
            with cases.case(name):
                assert [*excess_rights(pod)] == []


def test_an_excess_right_of_a_pod_is_detected() -> None:
    def spoil(change: Callable[[dict[str, Any], dict[str, Any]], object]) -> list[str]:
        pod = json.loads(json.dumps(pods()["CronJob txnscan-sweep"]))
        change(pod, pod["containers"][0])
        return [*excess_rights(pod)]

    with Cases() as cases:
        for expected, change in (
            ("root", lambda pod, _: pod["securityContext"].update(runAsNonRoot=False)),
            ("root", lambda pod, _: pod["securityContext"].update(runAsUser=0)),
            ("system calls", lambda pod, _: pod["securityContext"].update(seccompProfile={"type": "Unconfined"})),
            ("token", lambda pod, _: pod.update(automountServiceAccountToken=True)),
            ("escalation or writes", lambda _, one: one["securityContext"].update(readOnlyRootFilesystem=False)),
            ("escalation or writes", lambda _, one: one["securityContext"].update(allowPrivilegeEscalation=True)),
            ("capabilities", lambda _, one: one["securityContext"].update(capabilities={})),
            ("no requests", lambda _, one: one["resources"]["requests"].pop("cpu")),
            ("no limit of memory", lambda _, one: one["resources"]["limits"].pop("memory")),
        ):
            with cases.case(expected):
                assert spoil(change) == [expected]


def test_every_mount_of_a_pod_exists() -> None:
    with Cases() as cases:
        for name, pod in pods().items():
            with cases.case(name):
                kustomization = objects()["Kustomization"]
                made = {
                    one["name"] for kind in ("configMapGenerator", "secretGenerator") for one in kustomization[kind]
                }
                claims = {
                    one["metadata"]["name"] for one in objects().values() if one["kind"] == "PersistentVolumeClaim"
                }
                volumes = {volume["name"]: volume for volume in pod["volumes"]}
                for container in pod["containers"]:
                    assert {mount["name"] for mount in container["volumeMounts"]} == volumes.keys()
                for volume in volumes.values():
                    match volume:
                        case {"persistentVolumeClaim": {"claimName": claim}}:
                            assert claim in claims
                        case {"secret": {"secretName": named}} | {"configMap": {"name": named}}:
                            assert named in made
                        case _:
                            assert volume["emptyDir"] == {}


def test_the_scraped_port_is_the_one_that_watch_serves() -> None:
    (container,) = pods()["Deployment txnscan-watch"]["containers"]
    (port,) = container["ports"]
    assert container["args"][container["args"].index("--listen") + 1] == f":{port['containerPort']}"
    (service_port,) = objects()["Service txnscan-watch"]["spec"]["ports"]
    (endpoint,) = objects()["ServiceMonitor txnscan-watch"]["spec"]["endpoints"]
    assert service_port["targetPort"] == port["name"] and endpoint["port"] == service_port["name"]
    labels = objects()["Service txnscan-watch"]["metadata"]["labels"].items()
    assert objects()["ServiceMonitor txnscan-watch"]["spec"]["selector"]["matchLabels"].items() <= labels
    selected = objects()["Service txnscan-watch"]["spec"]["selector"].items()
    assert selected <= objects()["Deployment txnscan-watch"]["spec"]["template"]["metadata"]["labels"].items()
    probed = {container[f"{probe}Probe"]["httpGet"]["path"] for probe in ("startup", "liveness", "readiness")}
    assert probed == {"/healthz", "/readyz"}


def addresses() -> Iterator[tuple[str, str, int]]:
    """The component, the namespace and the port of each bootstrap server. A service's second label is its namespace."""
    args = pods()["CronJob txnscan-sweep"]["containers"][0]["args"]
    clusters = tomllib.loads((KUBERNETES / "clusters.toml").read_text("utf-8"))["clusters"].values()
    named = [("sweep", args[args.index("--bootstrap-server") + 1])]
    named += [("watch", cluster["bootstrap-server"]) for cluster in clusters]
    for component, servers in named:
        for server in servers.split(","):
            host, _, port = server.rpartition(":")
            yield component, host.split(".")[1], int(port)


def test_a_pod_may_connect_only_to_its_brokers_and_dns() -> None:
    policy = objects()["NetworkPolicy txnscan-brokers"]["spec"]
    (selected,) = policy["podSelector"]["matchExpressions"]
    dns, brokers = policy["egress"]
    (namespaces,) = brokers["to"][0]["namespaceSelector"]["matchExpressions"]
    (port,) = brokers["ports"]
    needed = {*addresses()}
    assert {server_port for _, _, server_port in needed} == {port["port"]}
    assert {*selected["values"]} == {component for component, _, _ in needed}
    assert {*namespaces["values"]} == {space for _, space, _ in needed}
    assert {(one["protocol"], one["port"]) for one in dns["ports"]} == {("UDP", 53), ("TCP", 53)}
    denied = objects()["NetworkPolicy txnscan-default-deny"]["spec"]
    assert denied == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


def test_only_the_metrics_port_accepts_connections() -> None:
    entering = {name: one["spec"]["ingress"] for name, one in objects().items() if "ingress" in one.get("spec", {})}
    assert entering.keys() == {"NetworkPolicy txnscan-metrics"}
    selected = objects()["NetworkPolicy txnscan-metrics"]["spec"]["podSelector"]["matchLabels"].items()
    assert selected <= objects()["Deployment txnscan-watch"]["spec"]["template"]["metadata"]["labels"].items()
    (container,) = pods()["Deployment txnscan-watch"]["containers"]
    (rule,) = entering["NetworkPolicy txnscan-metrics"]
    assert rule["from"] and [one["port"] for one in rule["ports"]] == [one["name"] for one in container["ports"]]


def test_kustomize_uses_every_file(tmp_path: Path) -> None:
    kustomization = objects()["Kustomization"]
    files = {path.name for path in KUBERNETES.iterdir()}
    generated = {
        file
        for kind in ("configMapGenerator", "secretGenerator")
        for one in kustomization[kind]
        for file in one["files"]
    }
    assert files == {"kustomization.yaml", *kustomization["resources"], *generated}
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        return
    ran = subprocess.run([kubectl, "kustomize", str(KUBERNETES)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    rendered = [one for one in yaml.safe_load_all(ran.stdout) if one["kind"] not in CUSTOM]
    assert len(rendered) == len(objects()) - len(CUSTOM) + len(generated)
    for one in rendered:
        validate(one)


def test_the_clusters_of_the_config_map_are_valid_for_watch(tmp_path: Path) -> None:
    text = (KUBERNETES / "clusters.toml").read_text("utf-8").replace("/etc/txnscan/kafka/", "")
    (tmp_path / "clusters.toml").write_text(text, "utf-8")
    shutil.copy(KUBERNETES / "client.properties", tmp_path)
    found = read_clusters(tmp_path / "clusters.toml", {})
    assert len(found.clusters) == 2 and all(one.connection() for one in found.clusters.values())


# --- Databricks

# In the expression with which a filter shows the values that other filters leave.
_OF_FILTERS = "associative_filter_predicate_group"


@pytest.mark.parametrize("kind", ["jobs", "dashboards", "alerts"])
def test_a_resource_of_the_bundle_matches_the_databricks_types(kind: str) -> None:
    from databricks.bundles.alerts import Alert
    from databricks.bundles.dashboards import Dashboard
    from databricks.bundles.jobs import Job

    types: dict[str, Any] = {"jobs": Job, "dashboards": Dashboard, "alerts": Alert}
    for resource in bundle()["resources"][kind].values():
        assert types[kind].from_dict(resource).as_dict() == resource
    with pytest.raises(ValueError, match="nmae"):
        types[kind].from_dict({**resource, "nmae": "x"})


def test_a_job_of_the_bundle_survives_a_slow_start_and_runs_as_a_service_principal() -> None:
    jobs = bundle()["resources"]["jobs"]
    sweep = jobs["txnscan_sweep"]
    (words,) = (task["python_wheel_task"]["parameters"] for task in sweep["tasks"])
    timeout_s = parse_duration_ms(words[words.index("--timeout") + 1], "--timeout") // 1_000
    assert timeout_s < 300 and sweep["timeout_seconds"] >= timeout_s + 600
    assert {job["performance_target"] for job in jobs.values()} == {"PERFORMANCE_OPTIMIZED", "STANDARD"}
    for job in jobs.values():
        assert job["run_as"] == {"service_principal_name": "${var.run_as}"} and job["permissions"]


def test_references_in_the_bundle_exist() -> None:
    text = json.dumps(bundle())
    named = set(re.findall(r"\$\{var\.(\w+)\}", text))
    assert named == bundle()["variables"].keys()
    assert set(re.findall(r"\$\{(\w+)\.", text)) <= {"var", "workspace"}
    for dashboard in bundle()["resources"]["dashboards"].values():
        assert (FOLDER / "databricks" / dashboard["file_path"]).is_file()
    for job in bundle()["resources"]["jobs"].values():
        environments = {one["environment_key"] for one in job["environments"]}
        assert {task["environment_key"] for task in job["tasks"]} <= environments


def test_the_dashboard_shows_existing_columns_in_widgets_without_overlap() -> None:
    datasets = {one["name"]: "".join(one["queryLines"]) for one in BOARD["datasets"]}
    (page,) = BOARD["pages"]
    taken: set[tuple[int, int]] = set()
    used = set()
    for placed in page["layout"]:
        widget, at = placed["widget"], placed["position"]
        queries = {one["name"]: one["query"] for one in widget["queries"]}
        for query in queries.values():
            used.add(query["datasetName"])
            columns = {column for field in query["fields"] for column in re.findall(r"`(\w+)`", field["expression"])}
            assert all(column in datasets[query["datasetName"]] for column in columns - {_OF_FILTERS})
        fields = {field["name"] for query in queries.values() for field in query["fields"]}
        shown = {one["fieldName"] for one in _encodings(widget["spec"]["encodings"])}
        assert shown == {name for name in fields if not name.endswith("_associativity")}
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["width"]) for y in range(at["height"])}
        assert not cells & taken and at["x"] + at["width"] <= 6
        taken |= cells
    assert used == datasets.keys()
    assert len({placed["widget"]["name"] for placed in page["layout"]}) == len(page["layout"])


def test_the_filter_of_the_dashboard_selects_clusters_in_every_dataset() -> None:
    (widget,) = (
        placed["widget"]
        for placed in BOARD["pages"][0]["layout"]
        if placed["widget"]["spec"]["widgetType"].startswith("filter-")
    )
    asked = {one["name"]: one["query"]["datasetName"] for one in widget["queries"]}
    filtered = {asked[one["queryName"]] for one in widget["spec"]["encodings"]["fields"]}
    assert filtered == {one["name"] for one in BOARD["datasets"]}
    assert {one["fieldName"] for one in widget["spec"]["encodings"]["fields"]} == {"cluster_id"}


def _encodings(encodings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for one in encodings.values():
        yield from one if isinstance(one, list) else (one,)


def test_every_view_with_a_verdict_is_on_the_dashboard() -> None:
    text = " ".join("".join(one["queryLines"]) for one in BOARD["datasets"])
    assert {view.name for view in VIEWS if not re.search(rf"\b{view.name}\b", text)} == {"current_transactions"}


# --- Airflow and cron


class Operators:
    """Stands in for Airflow, which is too large to install for a test, and records the operators of the file."""

    def __init__(self) -> None:
        self.made: dict[str, dict[str, Any]] = {}
        self.dag: dict[str, Any] = {}

    def run(self, source: str) -> None:
        tree = ast.parse(source)
        tree.body = [one for one in tree.body if not (isinstance(one, ast.ImportFrom) and "airflow" in f"{one.module}")]
        exec(compile(tree, "dag", "exec"), {"DAG": self._dag, "BashOperator": self._bash})

    def _dag(self, dag_id: str, **options: Any) -> Any:
        import contextlib

        self.dag = {"dag_id": dag_id, **options}
        return contextlib.nullcontext()

    def _bash(self, *, task_id: str, **options: Any) -> Any:
        self.made[task_id] = options
        return _Chained()


class _Chained:
    def __rshift__(self, other: _Chained) -> _Chained:
        return other


@pytest.fixture(scope="module")
def airflow() -> Operators:
    operators = Operators()
    operators.run((FOLDER / "airflow" / "txnscan_dag.py").read_text("utf-8"))
    return operators


def test_airflow_runs_one_sweep_at_a_time_and_separates_hanging_from_incomplete(airflow: Operators) -> None:
    assert airflow.dag["max_active_runs"] == 1 and airflow.dag["catchup"] is False
    assert "--fail-on incomplete" in airflow.made["sweep"]["bash_command"]
    assert "--fail-on hanging" in airflow.made["hanging"]["bash_command"]
    assert airflow.made["hanging"]["trigger_rule"] == "all_done"


def command_lines() -> Iterator[tuple[str, list[str]]]:
    """Every txnscan command in docs/deployment, by its location."""
    for name, pod in pods().items():
        yield from ((name, container["args"]) for container in pod["containers"])
    for job in bundle()["resources"]["jobs"].values():
        for task in job["tasks"]:
            words = task["python_wheel_task"]["parameters"]
            yield f"Databricks {task['task_key']}", [word.replace("${var.catalog}", "main") for word in words]
    operators = Operators()
    operators.run((FOLDER / "airflow" / "txnscan_dag.py").read_text("utf-8"))
    for task_id, options in operators.made.items():
        unconditional = re.sub(r"\{%.*?%\}", "", options["bash_command"])
        filled = re.sub(r"\{\{.*?\}\}", "/x", unconditional).replace("--bootstrap-server /x", "--bootstrap-server h:1")
        yield f"Airflow {task_id}", shlex.split(filled)[1:]
    for path in (FOLDER / "README.md", FOLDER / "cron" / "txnscan-sweep", FOLDER / "spark.md"):
        text = path.read_text("utf-8").replace("\\\n", " ").replace('"$TXNSCAN_BOOTSTRAP_SERVERS"', "h:1")
        text = re.sub(r"\$\{TXNSCAN_COMMAND_CONFIG:\+ ?(--command-config) [^}]*\}", r" \1 client.properties", text)
        for line in re.findall(r"(?:^ {4}|`|\(|: )(txnscan [a-z-]+ --?[^`\n]+)", text, re.M):
            words = shlex.split(re.split(r" 2>&1|\"? ;;|  #", line)[0].replace('"', ""))
            yield f"{path.name}", words[1:]


def test_every_command_line_is_valid() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    with Cases() as cases:
        for where, words in command_lines():
            with cases.case(f"{where} {' '.join(words)}"):
                commands[words[0]].make_context(words[0], list(words[1:]))


CRON = FOLDER / "cron" / "txnscan-sweep"


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (0, None),
        (1, "The sweep failed with status 1."),
        (2, "The sweep failed with status 2."),
        (3, "Something hangs. What to do: txnscan plan"),
        (4, "Not everything was observed. What is missing: txnscan check"),
    ],
)
def test_cron_reports_each_failing_status_and_is_quiet_otherwise(tmp_path: Path, status: int, says: str | None) -> None:
    """A fake txnscan ends with each status."""
    fake = tmp_path / "txnscan"
    fake.write_text(f'#!/bin/sh\necho "swept $*"\nexit {status}\n', "utf-8")
    fake.chmod(0o755)
    environment = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "TXNSCAN_LOCK": str(tmp_path / "lock")}
    ran = subprocess.run(["sh", str(CRON)], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == status
    if says is None:
        assert ran.stdout == ""
    else:
        assert ran.stdout.startswith(says) and "swept sweep --bootstrap-server localhost:9092 --tables" in ran.stdout
    ran = subprocess.run(
        ["sh", str(CRON)],
        env={**environment, "TXNSCAN_COMMAND_CONFIG": "/etc/of kafka.properties"},
        capture_output=True,
        text=True,
        check=False,
    )
    if status:
        assert "--command-config /etc/of kafka.properties --tables" in ran.stdout


def test_cron_finds_the_command_outside_its_short_path(tmp_path: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", "TXNSCAN_LOCK": str(tmp_path / "private" / "lock")}

    def status(**variables: str) -> tuple[int, int]:
        ran = subprocess.run(
            ["sh", str(CRON)], env={**environment, **variables}, capture_output=True, text=True, check=False
        )
        return ran.returncode, len(ran.stdout.splitlines())

    assert status(TXNSCAN_PATH="/nowhere") == (2, 1)
    for folder in (tmp_path / "bin", tmp_path / ".local" / "bin"):
        folder.mkdir(parents=True)
        (folder / "txnscan").write_text("#!/bin/sh\nexit 0\n", "utf-8")
        (folder / "txnscan").chmod(0o755)
    assert status(TXNSCAN_PATH=str(tmp_path / "bin")) == (0, 0)
    assert status(HOME=str(tmp_path)) == (0, 0)


def test_the_lock_of_cron_is_private_and_a_lock_older_than_an_hour_is_reported(tmp_path: Path) -> None:
    """A fake txnscan counts its sweeps. Status, lines and sweeps for each path of the lock."""
    fake = tmp_path / "txnscan"
    fake.write_text(f'#!/bin/sh\necho >>"{tmp_path}/sweeps"\n', "utf-8")
    fake.chmod(0o755)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    (tmp_path / "private").mkdir(0o700)
    (tmp_path / "link").symlink_to("private")
    environment = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}

    def sweep(**variables: str) -> tuple[int, int, int]:
        before = (tmp_path / "sweeps").stat().st_size if (tmp_path / "sweeps").exists() else 0
        ran = subprocess.run(
            ["sh", str(CRON)], env={**environment, **variables}, capture_output=True, text=True, check=False
        )
        after = (tmp_path / "sweeps").stat().st_size if (tmp_path / "sweeps").exists() else 0
        return ran.returncode, len(ran.stdout.splitlines()), after - before

    with Cases() as cases:
        for variables, expected in (
            ({}, (2, 1, 0)),
            ({"HOME": str(tmp_path / "home")}, (0, 0, 1)),
            ({"XDG_STATE_HOME": str(tmp_path / "state")}, (0, 0, 1)),
            ({"XDG_RUNTIME_DIR": str(tmp_path / "run"), "HOME": "/nowhere"}, (0, 0, 1)),
            ({"TXNSCAN_LOCK": str(tmp_path / "open" / "lock")}, (2, 1, 0)),
            ({"TXNSCAN_LOCK": str(tmp_path / "link" / "lock")}, (2, 1, 0)),
            ({"TXNSCAN_LOCK": str(tmp_path / "private" / "lock")}, (0, 0, 1)),
        ):
            with cases.case(sorted(variables.items())):
                assert sweep(**variables) == expected
    assert not list(Path("/tmp").glob("txnscan-sweep.lock"))
    for made in ("home/.local/state/txnscan", "state/txnscan", "run/txnscan"):
        assert (tmp_path / made).stat().st_mode & 0o777 == 0o700
    lock = tmp_path / "private" / "lock"
    with lock.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert sweep(TXNSCAN_LOCK=str(lock)) == (0, 0, 0)
        hour_ago = lock.stat().st_mtime - 3_660
        os.utime(lock, (hour_ago, hour_ago))
        assert sweep(TXNSCAN_LOCK=str(lock)) == (1, 1, 0)
    assert sweep(TXNSCAN_LOCK=str(lock)) == (0, 0, 1)


# --- the image


def test_the_image_is_not_root_and_starts_txnscan() -> None:
    text = (FOLDER / "Dockerfile").read_text("utf-8")
    steps = [line.split(None, 1) for line in text.replace("\\\n", " ").splitlines() if line and line[0].isupper()]
    assert [rest for step, rest in steps if step == "USER"] == ["65532:65532"]
    assert [json.loads(rest) for step, rest in steps if step == "ENTRYPOINT"] == [["txnscan"]]
    copied = [rest.split()[:-1] for step, rest in steps if step == "COPY" and not rest.startswith("--from")]
    assert all((ROOT / name).exists() for names in copied for name in names)


def test_the_image_installs_only_packages_with_pinned_hashes() -> None:
    text = (FOLDER / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    commands = [shlex.split(one) for one in re.findall(r"\S+/pip (?:install|wheel) [^&\n]+", text)]
    assert len(commands) == 4
    with Cases() as cases:
        for command in commands:
            with cases.case(shlex.join(command)):
                if "--requirement" in command:
                    assert "--require-hashes" in command
                    assert (ROOT / command[command.index("--requirement") + 1]).is_file()
                else:
                    assert {"--no-index", "--no-deps"} <= {*command}
                    assert command[1] == "install" or "--no-build-isolation" in command


def test_the_build_context_has_exactly_the_files_that_the_image_copies() -> None:
    ignored = [line for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if not line.startswith("#")]
    text = (FOLDER / "Dockerfile").read_text("utf-8")
    copied = {name for names in re.findall(r"^COPY ([^-].*) \S+$", text, re.M) for name in names.split()}
    assert ignored[0] == "*" and {line[1:] for line in ignored if line.startswith("!")} == copied
