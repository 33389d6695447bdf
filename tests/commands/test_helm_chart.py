"""The Helm chart takes the keys of clusters.toml and no credentials. Kubernetes and txnscan accept its objects."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from tests.cases import Cases
from tests.go import go_program
from tests.kubernetes import KUBERNETES_VERSION, by_name, excess_rights, mounted, pods, validate
from tests.process import ROOT, run_to_end
from txnscan.cli.app import app
from txnscan.config import ScanConfig
from txnscan.config.settings import COMMAND_CONFIG, SETTINGS, TABLES, Kind
from txnscan.version import __version__
from txnscan.watch.clusters import _NOTIFY_KEYS, read_clusters

CHART = ROOT / "docs" / "deployment" / "helm"
EXAMPLES = {path.stem: path for path in sorted((CHART / "examples").glob("*.yaml"))}
HELM = ("helm.sh/helm/v3/cmd/helm", "v3.22.0")
# Where the pods have clusters.toml, and below it the Secrets.
MOUNTS = "/etc/txnscan"
CLIENT_PROPERTIES = {
    "orders-kafka": (
        "security.protocol=SASL_SSL\n"
        "sasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="txnscan" password="made-up";\n'
    ),
    "logs-kafka": "security.protocol=SSL\n",
}
ONE: dict[str, Any] = {"clusters": {"orders": {"bootstrap-server": "h:1"}}}


def parsed(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    return found


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Values over the defaults, as Helm merges them."""
    both = {
        key: merged(below[key], value) if isinstance(value, dict) and isinstance(below.get(key), dict) else value
        for key, value in above.items()
    }
    return {**below, **both}


# --- the values


@cache
def schema() -> dict[str, Any]:
    made: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    return made


def refused(values: Mapping[str, Any]) -> list[str]:
    """The places of values that the schema refuses, over the defaults."""
    import jsonschema

    errors = jsonschema.Draft7Validator(schema()).iter_errors(merged(parsed(CHART / "values.yaml"), values))
    return sorted("/".join(map(str, error.absolute_path)) for error in errors)


def test_the_values_of_a_cluster_and_a_target_are_the_keys_of_clusters_toml() -> None:
    cluster = schema()["properties"]["clusters"]["additionalProperties"]["properties"]
    assert cluster.keys() == SETTINGS.keys() - {TABLES.key}
    whole = {key for key, value in cluster.items() if value.get("type") == "integer"}
    assert whole == {key for key, one in SETTINGS.items() if one.kind is Kind.WHOLE_NUMBER}
    target = schema()["properties"]["notify"]["items"]["properties"]
    assert target.keys() == {*_NOTIFY_KEYS} - {"url"}


def test_each_default_is_in_the_schema() -> None:
    def undeclared(values: Mapping[str, Any], declared: Mapping[str, Any], at: str) -> list[str]:
        properties = declared.get("properties")
        if properties is None:
            return []
        here = [f"{at}/{key}" for key in values.keys() ^ properties.keys() - {"global"}]
        below = ((value, key) for key, value in values.items() if isinstance(value, dict) and key in properties)
        return here + [one for value, key in below for one in undeclared(value, properties[key], f"{at}/{key}")]

    defaults = parsed(CHART / "values.yaml")
    # Its fields are Kubernetes' own, and none has a default.
    assert defaults.pop("podSpec") == {}
    properties = {key: value for key, value in schema()["properties"].items() if key not in ("podSpec", "global")}
    assert undeclared(defaults, {"properties": properties}, "") == []


def test_the_schema_accepts_the_examples() -> None:
    with Cases() as cases:
        for name, path in EXAMPLES.items():
            with cases.case(name):
                assert refused(parsed(path)) == []


def test_the_schema_refuses_wrong_values_and_credentials() -> None:
    def cluster(**values: Any) -> dict[str, Any]:
        named = {key.replace("_", "-"): value for key, value in values.items()}
        return {"clusters": {"orders": {"bootstrap-server": "h:1", **named}}}

    with Cases() as cases:
        for values, expected in (
            (ONE, []),
            ({}, ["clusters"]),
            ({"clusters": {"orders": {}}}, ["clusters/orders"]),
            (cluster(late_aftr="20m"), ["clusters/orders"]),
            (cluster(batch_size="200"), ["clusters/orders/batch-size"]),
            (cluster(in_flight=1.5), ["clusters/orders/in-flight"]),
            (cluster(topic=[1]), ["clusters/orders/topic"]),
            (cluster(password="made-up"), ["clusters/orders"]),
            ({**ONE, "notify": [{"url": "https://chat.example/hook"}]}, ["notify/0", "notify/0"]),
            ({**ONE, "secrets": ["../escape"]}, ["secrets/0"]),
            ({**ONE, "secrets": ["a", "a"]}, ["secrets"]),
            ({**ONE, "env": {"AWS_SECRET_ACCESS_KEY": "made-up"}}, ["env"]),
            ({**ONE, "env": {"TXNSCAN_BASIC_AUTH": "made-up"}}, ["env"]),
            ({**ONE, "env": {"TXNSCAN_PAGERDUTY_ROUTING_KEY": "made-up"}}, ["env"]),
            ({**ONE, "tables": {"location": "/tmp/tables"}}, ["tables/location"]),
            ({**ONE, "tables": {"location": "catalog.schema"}}, ["tables/location"]),
            ({**ONE, "image": {"digest": "sha256:1"}}, ["image/digest"]),
            ({**ONE, "podSpec": {"hostNetwork": True}}, ["podSpec"]),
            ({**ONE, "sweeps": {}}, [""]),
        ):
            with cases.case(json.dumps(values)):
                assert refused(values) == expected


# --- rendered by Helm: slow, as Helm may have to be compiled


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[int, str]]:
    """Runs Helm on the chart, with values on top. Returns its exit status and its output."""
    program = go_program(*HELM)
    home = tmp_path_factory.mktemp("helm")
    environment = {f"HELM_{name}_HOME": str(home) for name in ("CACHE", "CONFIG", "DATA")}

    def run(command: str, *values: Path | Mapping[str, Any], release: str = "kafka") -> tuple[int, str]:
        files = []
        for number, one in enumerate(values):
            file = one if isinstance(one, Path) else home / f"{number}.yaml"
            if not isinstance(one, Path):
                file.write_text(yaml.safe_dump({**one}, allow_unicode=True), "utf-8")
            files += ["--values", str(file)]
        words = {"lint": ["lint", "--strict"], "template": ["template", release]}[command]
        ran = run_to_end(
            [program, *words, str(CHART), "--kube-version", KUBERNETES_VERSION, *files], environment=environment
        )
        return ran.returncode, ran.stdout if ran.returncode == 0 else ran.stderr + ran.stdout

    return run


@pytest.fixture
def render(helm: Callable[..., tuple[int, str]]) -> Callable[..., dict[str, dict[str, Any]]]:
    """The objects of a release, by kind and name."""

    def run(*values: Path | Mapping[str, Any], release: str = "kafka") -> dict[str, dict[str, Any]]:
        status, output = helm("template", *values, release=release)
        assert status == 0, output
        return by_name(yaml.safe_load_all(output))

    return run


def clusters_text(objects: Mapping[str, dict[str, Any]]) -> str:
    (found,) = [one["data"] for one in objects.values() if one["kind"] == "ConfigMap"]
    text: str = found["clusters.toml"]
    return text


def read_rendered(text: str, folder: Path) -> tuple[Mapping[str, ScanConfig], int]:
    """The clusters and the number of targets that `watch` reads from the text, beside Secrets as the kubelet lays them
    out: a file is a link to a folder of this version.
    """
    for name, files in {
        **{name: {"client.properties": text} for name, text in CLIENT_PROPERTIES.items()},
        "slack": {"url": "https://chat.example/made-up"},
    }.items():
        secret = folder / "secrets" / name
        (secret / "..1").mkdir(parents=True)
        (secret / "..data").symlink_to("..1")
        for file, content in files.items():
            (secret / "..1" / file).write_text(content, "utf-8")
            (secret / file).symlink_to(Path("..data") / file)
    path = folder / "clusters.toml"
    path.write_text(text.replace(MOUNTS, str(folder)), "utf-8")
    found = read_clusters(path, {})
    assert all(one.connection() for one in found.clusters.values())
    return found.clusters, len(found.targets)


def test_rendered_lint_is_strict_and_applies_the_schema(helm: Callable[..., tuple[int, str]]) -> None:
    with Cases() as cases:
        for name, path in EXAMPLES.items():
            with cases.case(name):
                status, output = helm("lint", path)
                assert status == 0, output
        with cases.case("no cluster"):
            status, output = helm("template", {})
            assert status != 0 and "/clusters" in output
        with cases.case("a credential"):
            status, output = helm("template", {**ONE, "env": {"AWS_SECRET_ACCESS_KEY": "made-up"}})
            assert status != 0 and "/env/AWS_SECRET_ACCESS_KEY" in output and "made-up" not in output


def test_rendered_objects_match_the_schemas_of_kubernetes(
    render: Callable[..., dict[str, dict[str, Any]]],
) -> None:
    jobs = {"CronJob kafka-txnscan-sweep", "CronJob kafka-txnscan-maintain"}
    always = {"ConfigMap kafka-txnscan-clusters", "ServiceAccount kafka-txnscan"}
    watching = {f"{kind} kafka-txnscan-watch" for kind in ("Deployment", "Service", "ServiceMonitor")}
    kinds = {
        "one-cluster": {*always, *jobs, "PersistentVolumeClaim kafka-txnscan-tables"},
        "three-clusters": {*always, *jobs},
        "watch": {*always, *watching, "NetworkPolicy kafka-txnscan"},
    }
    assert kinds.keys() == EXAMPLES.keys()
    with Cases() as cases:
        for name, path in EXAMPLES.items():
            objects = render(path)
            with cases.case(name):
                assert objects.keys() == kinds[name]
            for shown, one in objects.items():
                with cases.case(f"{name} {shown}"):
                    validate(one)


def test_rendered_clusters_are_those_of_the_values(
    render: Callable[..., dict[str, dict[str, Any]]], tmp_path: Path
) -> None:
    odd = {
        "clusters": {
            'a "quoted" [name].é': {
                "bootstrap-server": "h:1",
                "topic": "<a&b>\\.\"x\"\t'y'",
                "batch-size": 10_000,
                "owner-pattern": ["π=π-\\d+", "b=\U0001f600"],
            }
        }
    }
    with Cases() as cases:
        for name, values in {**{name: parsed(path) for name, path in EXAMPLES.items()}, "odd": odd}.items():
            folder = tmp_path / name
            folder.mkdir()
            with cases.case(name):
                clusters, targets = read_rendered(clusters_text(render(values)), folder)
                assert clusters.keys() == values["clusters"].keys() and targets == len(values.get("notify", []))
                for cluster, keys in values["clusters"].items():
                    for key, value in keys.items():
                        setting = SETTINGS[key]
                        given = value.replace(MOUNTS, str(folder)) if key == COMMAND_CONFIG.key else value
                        expected = setting.of_text(given, key) if isinstance(given, str) else setting.parsed(given, key)
                        assert getattr(clusters[cluster], setting.field) == expected, key


def test_rendered_pods_have_minimal_rights_and_valid_commands(
    render: Callable[..., dict[str, dict[str, Any]]],
) -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    with Cases() as cases:
        for name, path in EXAMPLES.items():
            objects = render(path)
            values = merged(parsed(CHART / "values.yaml"), parsed(path))
            for shown, pod in pods(objects).items():
                with cases.case(f"{name} {shown}"):
                    assert [*excess_rights(pod)] == []
                    (container,) = pod["containers"]
                    words = container["args"]
                    commands[words[0]].make_context(words[0], list(words[1:]))
                    assert container["image"] == f"registry.example/txnscan:{__version__}"
                    at = mounted(pod)
                    assert {volume["name"] for volume in pod["volumes"]} == {volume["name"] for volume in at.values()}
                    assert at["/tmp"]["emptyDir"] == {}
                    if words[0] == "maintain":
                        assert not any(path.startswith(MOUNTS) for path in at)
                    else:
                        named = {volume["secret"]["secretName"] for volume in at.values() if "secret" in volume}
                        assert named == {*values["secrets"]}
                        assert words[words.index("--config") + 1] in at
                    on_volume = words[0] != "watch" and values["tables"]["location"].startswith("/data/")
                    assert ("/data" in at) == on_volume
                    if on_volume:
                        claim = at["/data"]["persistentVolumeClaim"]["claimName"]
                        assert f"PersistentVolumeClaim {claim}" in objects


def test_rendered_commands_take_the_values(render: Callable[..., dict[str, dict[str, Any]]]) -> None:
    objects = render(EXAMPLES["three-clusters"], {"image": {"digest": f"sha256:{'0' * 64}"}})
    sweep, maintain = (objects[f"CronJob kafka-txnscan-{name}"]["spec"] for name in ("sweep", "maintain"))
    assert (sweep["schedule"], sweep["suspend"], sweep["concurrencyPolicy"]) == ("*/10 * * * *", False, "Forbid")
    assert maintain["suspend"] is True and sweep["jobTemplate"]["spec"]["activeDeadlineSeconds"] == 580
    pod = pods(objects)["CronJob kafka-txnscan-sweep"]
    (container,) = pod["containers"]
    assert container["image"].endswith(f"@sha256:{'0' * 64}") and container["args"][-1] == "--verbose"
    assert container["args"][container["args"].index("--tables") + 1] == "s3://bucket/txnscan"
    assert {one["name"]: one["value"] for one in container["env"]} == {
        "AWS_REGION": "eu-central-1",
        "TXNSCAN_LOG_FORMAT": "json",
    }
    assert container["envFrom"] == [{"secretRef": {"name": "object-store"}}]
    assert pod["nodeSelector"] == {"kubernetes.io/arch": "amd64"} and pod["imagePullSecrets"] == [{"name": "registry"}]
    (rule,) = sweep["jobTemplate"]["spec"]["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"]["containerName"] == container["name"] and pod["restartPolicy"] == "Never"
    assert objects["ServiceAccount kafka-txnscan"]["metadata"]["annotations"] == {"example.com/role": "txnscan"}
    chosen = render({**ONE, "serviceAccount": {"name": "theirs"}, "tables": {"existingClaim": "their-tables"}})
    assert not [one for one in chosen if one.startswith(("ServiceAccount", "PersistentVolumeClaim"))]
    theirs = pods(chosen)["CronJob kafka-txnscan-sweep"]
    assert theirs["serviceAccountName"] == "theirs"
    assert mounted(theirs)["/data"]["persistentVolumeClaim"] == {"claimName": "their-tables"}


def test_rendered_selectors_and_ports_fit_together(render: Callable[..., dict[str, dict[str, Any]]]) -> None:
    objects = render(EXAMPLES["watch"])
    name = "kafka-txnscan-watch"
    deployment, service, monitor = (objects[f"{kind} {name}"] for kind in ("Deployment", "Service", "ServiceMonitor"))
    labels = deployment["spec"]["template"]["metadata"]["labels"].items()
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels
    assert service["spec"]["selector"].items() <= labels
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert service["metadata"]["labels"][monitor["spec"]["jobLabel"]] == "txnscan"
    assert monitor["metadata"]["labels"]["release"] == "kube-prometheus-stack"
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (port,), (service_port,), (endpoint,) = container["ports"], service["spec"]["ports"], monitor["spec"]["endpoints"]
    assert container["args"][container["args"].index("--listen") + 1] == f":{port['containerPort']}"
    assert (service_port["targetPort"], endpoint["port"]) == (port["name"], service_port["name"])
    policy = objects["NetworkPolicy kafka-txnscan"]["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= labels and policy["policyTypes"] == ["Ingress", "Egress"]
    (rule,) = policy["ingress"]
    assert rule["from"] and [one["port"] for one in rule["ports"]] == [port["name"]]
    assert [one["port"] for to in policy["egress"] for one in to["ports"]] == [53, 53, 9093, 443]


def test_rendered_watch_restarts_if_its_clusters_change(render: Callable[..., dict[str, dict[str, Any]]]) -> None:
    def checksum(**cluster: str) -> str:
        values = {"watch": {"enabled": True}, "clusters": {"orders": {"bootstrap-server": "h:1", **cluster}}}
        (deployment,) = [one for one in render(values).values() if one["kind"] == "Deployment"]
        found: str = deployment["spec"]["template"]["metadata"]["annotations"]["checksum/clusters"]
        return found

    assert re.fullmatch("[0-9a-f]{64}", checksum())
    assert checksum() == checksum() != checksum(timeout="50s")


def test_rendered_names_are_valid_for_each_release(render: Callable[..., dict[str, dict[str, Any]]]) -> None:
    """Helm allows 53 characters for a release, and Kubernetes 52 for a CronJob. A release may be a number."""
    with Cases() as cases:
        for release in ("txnscan", "my-txnscan", "a", "1", "x" * 53):
            with cases.case(release):
                objects = render(ONE, {"watch": {"enabled": True}}, release=release)
                assert len(objects) == 7
                for one in objects.values():
                    validate(one)
                    assert len(one["metadata"]["name"]) <= 52
                assert (f"ServiceAccount {release}" in objects) == ("txnscan" in release)
