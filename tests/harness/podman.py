"""Containers of a manifest under podman: as a kubelet would start them, as far as podman can.

SUB_TEST_IMAGE    an image of deploy/Dockerfile (docs/kubernetes.md says how one is built without a registry)
SUB_TEST_BASE     the image it was built from, in which an agent is run that knows nothing of Subluminal
SUB_TEST_PODMAN   the command, where `podman --runtime runc` is not it
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

from harness.manifests import arguments, environment

# Podman asks for more than a process that is limited itself may give.
LIMITS = {"nofile": 4096, "nproc": 1024}
IMAGE, BASE = os.environ.get("SUB_TEST_IMAGE", ""), os.environ.get("SUB_TEST_BASE", "")
PODMAN = shlex.split(os.environ.get("SUB_TEST_PODMAN", "podman --runtime runc"))


def why_not() -> str | None:
    """A sentence, where no pod can be run here."""
    if shutil.which(PODMAN[0]) is None:
        return "podman is not installed: the pod was not run"
    return None if IMAGE and BASE else "SUB_TEST_IMAGE and SUB_TEST_BASE name no images: the pod was not run"


def podman(*words: str, stdin: bytes | None = None, seconds: float = 100) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*PODMAN, *words], input=stdin, capture_output=True, timeout=seconds, check=False)


class Pod:
    """One network, one set of volumes below `directory`, and one user, as the pod's security context says."""

    def __init__(self, directory: Path, template: dict[str, Any], objects: Any, instead: dict[str, str]) -> None:
        self.directory, self._template, self._objects, self._instead = directory, template, objects, instead
        self.names: list[str] = []
        for volume in template["spec"]["volumes"]:
            place = directory / volume["name"]
            place.mkdir(exist_ok=True)
            place.chmod(0o777)  # as kubelet makes an emptyDir

    def words(self, container: dict[str, Any], image: str, *more: str) -> list[str]:
        """The options of `podman run` that stand for what the manifest says of this container, and its command."""
        context, user = container["securityContext"], self._template["spec"]["securityContext"]
        environ = {**environment(container, self._template, self._objects), **self._instead}
        told = [
            f"--user={user['runAsUser']}:{user['runAsGroup']}",
            "--network=host",  # loopback of this machine, where the test's origin and collector are
            *(f"--ulimit={name}={most}" for name, most in LIMITS.items()),
            *(f"--cap-drop={name}" for name in context["capabilities"]["drop"]),
            *(["--read-only", "--read-only-tmpfs=false"] if context["readOnlyRootFilesystem"] else []),
            *([] if context["allowPrivilegeEscalation"] else ["--security-opt=no-new-privileges"]),
            *(f"--env={name}={value}" for name, value in environ.items()),
            "--env=KUBERNETES_SERVICE_HOST=10.0.0.1",
        ]
        for mount in container["volumeMounts"]:
            ending = ":ro" if mount.get("readOnly") else ""
            source = self.directory / mount["name"] / mount.get("subPath", "")
            told.append(f"--volume={source}:{mount['mountPath']}{ending}")
        if "command" in container:
            told.append(f"--entrypoint={container['command'][0]}")
        said = [*container.get("command", [])[1:], *arguments(container, environ)]
        return [*told, *more, image, *said]

    def run(self, container: dict[str, Any]) -> subprocess.CompletedProcess[bytes]:
        """An init container: to its end."""
        return podman("run", "--rm", *self.words(container, IMAGE))

    def start(self, container: dict[str, Any]) -> str:
        name = f"sub-test-{self.directory.name}-{container['name']}"
        done = podman("run", "--detach", f"--name={name}", *self.words(container, IMAGE))
        assert done.returncode == 0, done.stderr.decode()
        self.names.append(name)
        return name

    def stop(self, name: str, seconds: int) -> tuple[int, str]:
        """SIGTERM, and SIGKILL after the grace period; its exit code, and what it said."""
        podman("stop", f"--time={seconds}", name, seconds=seconds + 60)
        code = int(podman("inspect", "--format={{.State.ExitCode}}", name).stdout)
        logs = podman("logs", name)
        return code, (logs.stdout + logs.stderr).decode("utf-8", "replace")

    def close(self) -> None:
        for name in self.names:
            podman("rm", "--force", "--time=0", name)
