"""The manifests of deploy/kubernetes as kustomize builds them, and what a kubelet would make of a container."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from harness import places

KUBERNETES = places.ROOT / "deploy" / "kubernetes"
Object = dict[str, Any]

# What the downward API gives as a variable, and as a file (kubernetes.io, "Downward API").
ENV_FIELDS = {
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.serviceAccountName", "spec.nodeName", "status.hostIP",
    "status.hostIPs", "status.podIP", "status.podIPs",
}  # fmt: skip
FILE_FIELDS = {"metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations"}
_KEYED = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


def kubectl() -> str | None:
    beside = Path(sys.executable).with_name("kubectl")
    return str(beside) if beside.exists() else shutil.which("kubectl")


@functools.cache
def built(directory: str) -> tuple[Object, ...]:
    command = [str(kubectl()), "kustomize", str(KUBERNETES / directory)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return tuple(one for one in yaml.safe_load_all(done.stdout) if one)


def find(objects: tuple[Object, ...], kind: str, name: str = "") -> Object:
    (found,) = [one for one in objects if one["kind"] == kind and name in ("", one["metadata"]["name"])]
    return found


def pod(deployment: Object) -> Object:
    template: Object = deployment["spec"]["template"]
    return template


def containers(template: Object) -> dict[str, Object]:
    """In the order in which they start."""
    spec = template["spec"]
    return {one["name"]: one for one in [*spec.get("initContainers", ()), *spec["containers"]]}


def field(path: str, template: Object) -> str:
    """What the downward API gives for a field of a pod of this template."""
    known = {
        "metadata.name": "agent-7d4f-abcde",
        "metadata.namespace": "payments",
        "metadata.uid": "0b7d",
        "spec.serviceAccountName": template["spec"]["serviceAccountName"],
        "spec.nodeName": "node-1",
    }
    keyed = _KEYED.fullmatch(path)
    return str(template["metadata"].get(keyed[1], {}).get(keyed[2], "")) if keyed else known[path]


def is_field(path: str, *, as_file: bool) -> bool:
    return path in (FILE_FIELDS if as_file else ENV_FIELDS) or _KEYED.fullmatch(path) is not None


def environment(container: Object, template: Object, objects: tuple[Object, ...]) -> dict[str, str]:
    found = {}
    for entry in container.get("env", ()):
        source = entry.get("valueFrom", {})
        if "fieldRef" in source:
            found[entry["name"]] = field(source["fieldRef"]["fieldPath"], template)
        elif "configMapKeyRef" in source:
            name, key = source["configMapKeyRef"]["name"], source["configMapKeyRef"]["key"]
            found[entry["name"]] = find(objects, "ConfigMap", name)["data"][key]
        elif "secretKeyRef" in source:
            found[entry["name"]] = "postgresql://store.example/sub"
        else:
            found[entry["name"]] = entry["value"]
    return found


def arguments(container: Object, environ: dict[str, str]) -> list[str]:
    """With `$(NAME)` as a kubelet expands it; a name that is not set stays as it is written."""
    return [re.sub(r"\$\((\w+)\)", lambda m: environ.get(m[1], m[0]), word) for word in container.get("args", ())]
