"""Kubernetes objects in tests: their schemas, the pods that they start, and the rights of a pod."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

# The oldest supported version at the time of writing. Later versions include its fields.
KUBERNETES_VERSION = "1.33"
# The kinds without a schema in Kubernetes itself, with their versions.
CUSTOM: Mapping[str, str] = {
    "Kustomization": "kustomize.config.k8s.io/v1beta1",
    "ServiceMonitor": "monitoring.coreos.com/v1",
}


def by_name(found: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The objects by kind and name."""
    return {f"{one['kind']} {one['metadata']['name']}" if "metadata" in one else one["kind"]: one for one in found}


def validate(one: dict[str, Any]) -> None:
    """Raises kubernetes_validate.ValidationError. Checks only the version of the kinds in CUSTOM."""
    import kubernetes_validate

    if (one["kind"], one["apiVersion"]) not in CUSTOM.items():
        kubernetes_validate.validate(one, KUBERNETES_VERSION, strict=True)


def pods(objects: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The specs of the pods that these objects start."""
    templates = {
        name: one["spec"]["jobTemplate"]["spec"]["template"] if one["kind"] == "CronJob" else one["spec"]["template"]
        for name, one in objects.items()
        if one["kind"] in ("CronJob", "Deployment")
    }
    return {name: template["spec"] for name, template in templates.items()}


def excess_rights(pod: dict[str, Any]) -> Iterator[str]:
    """The rights of a pod that Kubernetes' restricted policy, a read-only file system or a limit would take away."""
    context = pod["securityContext"]
    if not context["runAsNonRoot"] or context["runAsUser"] == 0:
        yield "root"
    if context["seccompProfile"] != {"type": "RuntimeDefault"}:
        yield "system calls"
    if pod["automountServiceAccountToken"]:
        yield "token"
    for container in pod["containers"]:
        allowed = container["securityContext"]
        if (allowed["allowPrivilegeEscalation"], allowed["readOnlyRootFilesystem"]) != (False, True):
            yield "escalation or writes"
        if allowed["capabilities"] != {"drop": ["ALL"]}:
            yield "capabilities"
        if not {"cpu", "memory"} <= container["resources"]["requests"].keys():
            yield "no requests"
        if "memory" not in container["resources"]["limits"]:
            yield "no limit of memory"


def mounted(pod: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The volume at each path of the containers. Raises KeyError if a mount has no volume."""
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    return {
        mount["mountPath"]: volumes[mount["name"]]
        for container in pod["containers"]
        for mount in container["volumeMounts"]
    }
