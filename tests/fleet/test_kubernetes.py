"""deploy/kubernetes without a cluster: strict schemas, every field, name, port, path and command line held against
what is really there. What only a cluster can show is said in docs/kubernetes.md."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from harness import manifests, places
from harness.manifests import KUBERNETES, arguments, built, containers, environment, find, is_field, pod

pytestmark = pytest.mark.skipif(manifests.kubectl() is None, reason="kubectl is not installed (make test-fleet)")

OVERLAYS = ["overlays/dev", "overlays/prod"]
WHOLE = [*OVERLAYS, "agent", "collector"]
SIDECARS = ("subluminal-bring", "subluminal-prepare", "subluminal", "subluminal-proxy")


def agent_pod(directory: str = "overlays/prod") -> dict[str, Any]:
    return pod(find(built(directory), "Deployment", "agent"))


def collector_pod(directory: str = "overlays/prod") -> dict[str, Any]:
    return pod(find(built(directory), "Deployment", "subluminal-collector"))


def pods(directory: str) -> list[dict[str, Any]]:
    return [pod(one) for one in built(directory) if one["kind"] == "Deployment"]


@pytest.mark.parametrize("directory", WHOLE)
def test_every_object_has_the_shape_that_the_current_kubernetes_demands(directory: str) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed (test-fleet)")
    for one in built(directory):
        validate.validate(one, validate.latest_version(), strict=True)


def test_the_strict_check_sees_a_key_that_is_misspelt() -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed (test-fleet)")
    wrong = yaml.safe_load(yaml.safe_dump(find(built("overlays/prod"), "Deployment", "agent")))
    wrong["spec"]["template"]["spec"]["initContainers"][0]["restartPolcy"] = "Always"
    with pytest.raises(validate.ValidationError):
        validate.validate(wrong, validate.latest_version(), strict=True)


@pytest.mark.parametrize("directory", WHOLE)
def test_every_field_of_the_downward_api_is_one_that_it_has(directory: str) -> None:
    """The schema takes any text as a fieldPath, and a pod with a wrong one never starts."""
    seen = 0
    for template in pods(directory):
        for container in containers(template).values():
            for entry in container.get("env", ()):
                path = entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
                assert path is None or is_field(path, as_file=False), path
                seen += path is not None
        for volume in template["spec"].get("volumes", ()):
            for item in volume.get("downwardAPI", {}).get("items", ()):
                assert is_field(item["fieldRef"]["fieldPath"], as_file=True)
                seen += 1
    assert seen or directory == "collector"
    assert not is_field("metadata.labels", as_file=False) and not is_field("spec.serviceAccountName", as_file=True)


@pytest.mark.parametrize("name", ["agent", "subluminal", "subluminal-proxy"])
def test_what_the_pod_is_told_is_what_the_identity_is_made_of(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The variables and the labels file, as a kubelet makes them, through the code that reads them."""
    from subluminal.host.identity import discover

    template = agent_pod()
    container = containers(template)[name]
    environ = environment(container, template, built("overlays/prod"))
    mounted = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    labels_file = Path(environ["SUB_POD_LABELS_FILE"])
    volume = next(one for one in template["spec"]["volumes"] if one["name"] == mounted[str(labels_file.parent)])
    assert volume["downwardAPI"]["items"][0]["path"] == labels_file.name
    labels = template["metadata"]["labels"]
    (tmp_path / "labels").write_text("".join(f'{key}="{value}"\n' for key, value in labels.items()))
    told = {**environ, "SUB_POD_LABELS_FILE": str(tmp_path / "labels"), "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    identity = discover({**told, "SUB_RUN_ID": "run-1"}, "host-1")
    assert (identity.agent_id, identity.env, identity.principal) == ("example", "prod", "agent")
    assert identity.workload == {
        "namespace": "payments",
        "pod": "agent-7d4f-abcde",
        "service_account": "agent",
        "labels": labels,
    }
    assert capfd.readouterr().err == ""


def test_every_variable_of_ours_is_one_that_something_reads() -> None:
    source = "\n".join(path.read_text() for path in (places.ROOT / "src" / "subluminal").rglob("*.py"))
    theirs = {"FLEET_URL", "COLLECTOR_URL", "SERVER_URL", "ISSUER", "SSL_CERT_FILE"}  # for $(NAME), and for ssl
    for template in (agent_pod(), collector_pod()):
        for container in containers(template).values():
            for entry in container.get("env", ()):
                assert entry["name"] in theirs or f'"{entry["name"]}"' in source, entry["name"]


def parsed(words: list[str]) -> click.Context:
    """As `sub WORDS` would be, up to what the command does."""
    from subluminal.cli.main import cli

    context: click.Context = cli.make_context("sub", list(words))
    while isinstance(context.command, click.Group):
        left = [*context._protected_args, *context.args]
        name, command, rest = context.command.resolve_command(context, left)
        assert command is not None
        context = command.make_context(name, rest, parent=context)
    return context


@pytest.mark.parametrize("directory", OVERLAYS)
def test_every_command_line_is_one_that_sub_takes(directory: str) -> None:
    seen = []
    for template in pods(directory):
        for container in containers(template).values():
            if container["name"] == "agent" or "command" in container:
                continue
            environ = environment(container, template, built(directory))
            words = arguments(container, environ)
            assert not any("$(" in word for word in words), words
            seen.append(parsed(words).command_path)
            for probe in ("startupProbe", "livenessProbe"):
                command = container.get(probe, {}).get("exec", {}).get("command", [])
                if command[:1] == ["sub"]:
                    seen.append(parsed(command[1:]).command_path)
    assert set(seen) == {"sub fleet sidecar", "sub proxy mcp", "sub ledgerd", "sub collector serve"}


def test_a_command_line_that_sub_does_not_take_is_seen() -> None:
    with pytest.raises(click.UsageError):
        parsed(["fleet", "sidecar", "--dran=25s"])


@pytest.mark.parametrize("directory", OVERLAYS)
def test_every_path_that_is_named_is_mounted_where_it_is_named(directory: str) -> None:
    for template in pods(directory):
        volumes = {one["name"] for one in template["spec"]["volumes"]}
        for container in containers(template).values():
            mounts = [mount["mountPath"] for mount in container.get("volumeMounts", ())]
            assert {mount["name"] for mount in container.get("volumeMounts", ())} <= volumes
            environ = environment(container, template, built(directory))
            words = [*arguments(container, environ), *environ.values()]
            paths = [word.partition("=")[2] if word.startswith("--") else word for word in words]
            for path in (path for path in paths if path.startswith("/")):
                assert any(path.startswith(mount) for mount in mounts), (container["name"], path)


@pytest.mark.parametrize("directory", OVERLAYS)
def test_what_config_maps_must_hold_is_in_them(directory: str) -> None:
    objects = built(directory)
    template = pod(find(objects, "Deployment", "agent"))
    names = {volume["configMap"]["name"] for volume in template["spec"]["volumes"] if "configMap" in volume}
    (name,) = names
    assert {"FLEET_URL", "COLLECTOR_URL", "SERVER_URL", "root.json", "ca.crt"} == set(
        find(objects, "ConfigMap", name)["data"]
    )
    assert re.fullmatch("subluminal-fleet-[a-z0-9]{10}", name), "a change of it must make new pods"


def options(words: list[str]) -> dict[str, str]:
    return {name: value for name, _, value in (word.partition("=") for word in words if word.startswith("--"))}


def test_ports_and_the_audience_are_the_same_wherever_they_stand() -> None:
    objects = built("overlays/prod")
    collector = containers(collector_pod())["collector"]
    told = options(collector["args"])
    port = int(told["--listen"].rpartition(":")[2])
    declared, metrics = collector["ports"]
    assert metrics["containerPort"] == int(told["--metrics-listen"].rpartition(":")[2]) != port
    assert collector_pod()["metadata"]["annotations"]["prometheus.io/port"] == str(metrics["containerPort"])
    (scraping,) = (
        rule
        for rule in find(objects, "NetworkPolicy", "subluminal-collector")["spec"]["ingress"]
        if {"protocol": "TCP", "port": metrics["containerPort"]} in rule["ports"]
    )
    assert [one["podSelector"]["matchLabels"]["app.kubernetes.io/name"] for one in scraping["from"]] == ["prometheus"]
    assert declared["containerPort"] == port and find(objects, "Service")["spec"]["ports"][0]["targetPort"] == "https"
    assert collector["readinessProbe"]["httpGet"]["port"] == declared["name"] == "https"
    for name in ("agent", "subluminal-collector"):
        policy = find(objects, "NetworkPolicy", name)["spec"]
        rules = policy["egress"] if name == "agent" else policy["ingress"]
        ports = {one["port"] for rule in rules for one in rule["ports"]}
        assert port in ports
    token = next(one for one in agent_pod()["spec"]["volumes"] if one["name"] == "subluminal-token")
    (source,) = token["projected"]["sources"]
    assert source["serviceAccountToken"]["audience"] == told["--audience"]
    prepared = options(containers(agent_pod())["subluminal-prepare"]["args"])
    assert prepared["--token-file"].endswith("/" + source["serviceAccountToken"]["path"])
    proxy = containers(agent_pod())["subluminal-proxy"]
    listens = options(proxy["args"])["--listen"].rpartition(":")
    assert f"('{listens[0]}', {listens[2]})" in proxy["startupProbe"]["exec"]["command"][-1]


def test_a_collector_takes_tokens_of_those_who_read_from_a_secret_that_may_be_missing() -> None:
    template = collector_pod()
    collector = containers(template)["collector"]
    (volume,) = (one for one in template["spec"]["volumes"] if one["name"] == "tokens")
    (mount,) = (one for one in collector["volumeMounts"] if one["name"] == "tokens")
    assert volume["secret"]["optional"] and mount["readOnly"]
    assert options(collector["args"])["--tokens"] == f"{mount['mountPath']}/tokens.json"


def test_the_probe_of_the_collector_asks_for_what_it_serves() -> None:
    from subluminal.fleet.collector import service

    path = containers(collector_pod())["collector"]["readinessProbe"]["httpGet"]["path"]
    annotations = collector_pod()["metadata"]["annotations"]
    text = Path(service.__file__).read_text()
    assert f'web.get("{path}"' in text and f'web.get("{annotations["prometheus.io/path"]}"' in text


@pytest.mark.parametrize("directory", OVERLAYS)
def test_every_container_keeps_to_the_restricted_standard_and_more(directory: str) -> None:
    """kubernetes.io, "Pod Security Standards", restricted; and a root file system that cannot be written."""
    allowed = {"configMap", "downwardAPI", "emptyDir", "projected", "secret", "name"}
    for template in pods(directory):
        spec = template["spec"]
        own = spec["securityContext"]
        assert (
            own["runAsNonRoot"] is True and own["runAsUser"] > 0 and own["seccompProfile"]["type"] == "RuntimeDefault"
        )
        assert not {"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"} & set(spec)
        assert spec["automountServiceAccountToken"] is False
        assert all(set(volume) <= allowed for volume in spec["volumes"])
        for container in containers(template).values():
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False and context["capabilities"] == {"drop": ["ALL"]}
            assert context["runAsNonRoot"] is True and context["readOnlyRootFilesystem"] is True
            assert "privileged" not in context and "runAsUser" not in context
            assert {"cpu", "memory"} <= set(container["resources"]["limits"]) and container["resources"]["requests"]


def test_the_agent_has_no_token_and_writes_only_where_it_must() -> None:
    template = agent_pod()
    mounts = containers(template)["agent"]["volumeMounts"]
    assert "subluminal-token" not in {mount["name"] for mount in mounts}
    writable = {mount["mountPath"] for mount in mounts if not mount.get("readOnly")}
    assert writable == {"/workspace", "/tmp", "/var/lib/subluminal"}


def test_the_sidecar_is_there_first_ends_last_and_has_time_to_drain() -> None:
    from subluminal.fleet.sidecar import END_S

    spec = agent_pod()["spec"]
    names = [one["name"] for one in spec["initContainers"]]
    assert tuple(names) == SIDECARS, "those that stay end in the reverse of this order"
    always = {one["name"] for one in spec["initContainers"] if one.get("restartPolicy") == "Always"}
    assert always == {"subluminal", "subluminal-proxy"}
    sidecar = containers(agent_pod())["subluminal"]
    assert "startupProbe" in sidecar and "lifecycle" not in sidecar
    drain = int(options(sidecar["args"])["--drain"].removesuffix("s"))
    assert drain + END_S < spec["terminationGracePeriodSeconds"] - 15, "the agent needs some of it to end"


def test_production_names_images_by_digest_and_closes_the_network() -> None:
    objects = built("overlays/prod")
    for template in pods("overlays/prod"):
        for container in containers(template).values():
            assert re.fullmatch(r"[a-z.]+/[a-z]+@sha256:[0-9a-f]{64}", container["image"])
    assert find(objects, "NetworkPolicy", "default-deny")["spec"]["podSelector"] == {}
    labels = find(objects, "Namespace")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    everywhere = [rule for one in objects if one["kind"] == "NetworkPolicy" for rule in one["spec"].get("egress", ())]
    assert all(rule.get("to") and rule.get("ports") for rule in everywhere), "no rule is open to everybody"


@pytest.mark.parametrize("directory", OVERLAYS)
def test_collectors_are_kept_apart_and_scaled(directory: str) -> None:
    objects = built(directory)
    labels = collector_pod(directory)["metadata"]["labels"]
    assert find(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert find(objects, "Service")["spec"]["selector"].items() <= labels.items()
    scaler = find(objects, "HorizontalPodAutoscaler")["spec"]
    assert scaler["scaleTargetRef"]["name"] == find(objects, "Deployment", "subluminal-collector")["metadata"]["name"]
    assert "replicas" not in find(objects, "Deployment", "subluminal-collector")["spec"]
    assert "cpu" in containers(collector_pod(directory))["collector"]["resources"]["requests"]


def test_what_is_brought_works_in_its_new_place_with_its_byte_code(tmp_path: Path) -> None:
    """The image's own Python, copied as deploy/Dockerfile copies it and handed on as the init container does."""
    image, brought = tmp_path / "subluminal", tmp_path / "brought"
    brought.mkdir()
    script = [sys.executable, str(places.ROOT / "tools" / "standalone.py"), str(image)]
    subprocess.run(script, check=True, capture_output=True, timeout=100)
    command = containers(agent_pod())["subluminal-bring"]["command"]
    moved = [word.replace("/opt/subluminal", str(image)).replace("/brought", str(brought)) for word in command]
    for _ in range(2):  # a container may be started again, and finds what it has brought
        subprocess.run(moved, check=True, timeout=100)
    shutil.rmtree(image)
    (mount,) = (one for one in containers(agent_pod())["agent"]["volumeMounts"] if one["name"] == "subluminal-bin")
    assert (mount["subPath"], mount["mountPath"]) == ("subluminal", "/opt/subluminal")
    brought = brought / "subluminal"
    source = brought / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "json" / "decoder.py"
    code = Path(importlib.util.cache_from_source(str(source)))
    if code.exists():  # the time of its source stands in it; another one, and it is compiled anew at each start
        assert int.from_bytes(code.read_bytes()[8:12], "little") == int(source.stat().st_mtime)
    packages = os.pathsep.join(path for path in sys.path if path.endswith("site-packages"))
    environ = {"PYTHONPATH": os.pathsep.join([str(places.ROOT / "src"), packages]), "SUB_HOME": str(tmp_path / "home")}
    python = str(brought / "bin" / "python3")
    where = subprocess.run([python, "-c", "import sys; print(sys.prefix)"], capture_output=True, text=True, check=True)
    assert where.stdout.strip() == str(brought)
    version = [python, "-B", "-m", "subluminal", "version"]
    done = subprocess.run(version, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "subluminal" in done.stdout.lower()


def test_no_file_names_a_place_that_is_not_an_example() -> None:
    for path in KUBERNETES.rglob("*"):
        if path.is_file():
            for host in re.findall(r"https?://([^\s/\"']+)", path.read_text()):
                assert re.search(r"(\.example|\.svc(\.cluster\.local)?|127\.0\.0\.1)(:\d+)?$", host), (path, host)
