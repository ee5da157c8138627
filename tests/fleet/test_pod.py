"""The example's pod under podman, container by container as its manifest says: an agent in an image that knows nothing
of Subluminal, its calls judged by the fleet's policy, and every event with the collector before the pod has ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import manifests
from harness.podman import BASE, Pod, podman, why_not
from harness.waiting import wait_for

pytest.importorskip("tuf", reason="needs the extra `fleet` (make test-fleet)")
pytest.importorskip("psycopg", reason="needs the extra `fleet` (make test-fleet)")

from harness.collector import CollectorProcess, collector
from harness.fleet import Fleet, bundle
from harness.ports import nobody_listens
from harness.stores import PostgresServer

pytestmark = [
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
    pytest.mark.skipif(manifests.kubectl() is None, reason="kubectl is not installed (make test-fleet)"),
]
OVERLAY = "overlays/prod"
SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s"}}
    elif asked.get("method") == "tools/call":
        result = {"content": [{"type": "text", "text": "done"}]}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""
SHIM = ["/opt/subluminal/bin/sub", "shim", "--server-name", "files", "--", "python3", "/workspace/server.py"]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(tmp_path, tenants=("payments",)) as made:
        made.publish(bundle("org", deny="rm"))
        yield made


@pytest.fixture
def central(tmp_path: Path, postgres_server: PostgresServer) -> Iterator[CollectorProcess]:
    with collector(tmp_path / "collector", postgres_server.database()) as started:
        yield started


@pytest.fixture
def pod(tmp_path: Path, fleet: Fleet, central: CollectorProcess) -> Iterator[Pod]:
    objects = manifests.built(OVERLAY)
    template = manifests.pod(manifests.find(objects, "Deployment", "agent"))
    directory = tmp_path / "pod"
    directory.mkdir()
    instead = {"FLEET_URL": fleet.origin.url, "COLLECTOR_URL": central.url, "SSL_CERT_FILE": "/dev/null"}
    made = Pod(directory, template, objects, instead)
    (directory / "subluminal-fleet" / "root.json").write_text(Path(fleet.root).read_text())
    (directory / "subluminal-token" / "token").write_text(central.token("acme", "pod-1"))
    labels = template["metadata"]["labels"].items()
    (directory / "subluminal-podinfo" / "labels").write_text("".join(f'{key}="{value}"\n' for key, value in labels))
    (directory / "workspace" / "server.py").write_text(SERVER)
    try:
        yield made
    finally:
        made.close()


def lines(*tools: str) -> bytes:
    asked = [
        {"method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {}}}
    ]
    asked += [{"method": "tools/call", "params": {"name": tool, "arguments": {}}} for tool in tools]
    numbered = ({"jsonrpc": "2.0", "id": number, **one} for number, one in enumerate(asked))
    return b"".join(json.dumps(one).encode() + b"\n" for one in numbered)


def test_the_pod_starts_in_its_order_obeys_and_is_drained_before_it_ends(pod: Pod, central: CollectorProcess) -> None:
    objects = manifests.built(OVERLAY)
    template = manifests.pod(manifests.find(objects, "Deployment", "agent"))
    parts = manifests.containers(template)
    for name in ("subluminal-bring", "subluminal-prepare"):
        done = pod.run(parts[name])
        assert done.returncode == 0, (name, done.stderr.decode())
    assert pod.run(parts["subluminal-prepare"]).stdout == b"had joined already\n"

    sidecar = pod.start(parts["subluminal"])
    probe = parts["subluminal"]["startupProbe"]["exec"]["command"]
    wait_for(lambda: podman("exec", sidecar, *probe).returncode == 0, what="the startup probe of the sidecar")
    with nobody_listens() as port:
        proxy_part = {**parts["subluminal-proxy"]}
        pod._instead["SERVER_URL"] = f"http://127.0.0.1:{port}/mcp"
        proxy = pod.start(proxy_part)
        ready = proxy_part["startupProbe"]["exec"]["command"]
        wait_for(lambda: podman("exec", proxy, *ready).returncode == 0, what="the startup probe of the proxy")

        words = pod.words(parts["agent"], BASE, "--interactive")
        agent = podman("run", "--rm", *words, *SHIM, stdin=lines("read", "rm", "read"))
        answers = {one["id"]: one for one in map(json.loads, agent.stdout.splitlines())}
        assert answers[1]["result"]["content"][0]["text"] == "done", agent.stderr.decode()
        assert answers[2]["error"]["data"]["subluminal"]["reason_code"], "the fleet's policy denies it"
        readonly = podman("run", "--rm", *words, "touch", "/opt/subluminal/x", "/x")
        assert readonly.returncode != 0 and readonly.stderr.count(b"Read-only file system") == 2
        absent = podman("run", "--rm", *words, "ls", "/var/run/secrets/subluminal", "/etc/subluminal-fleet")
        assert absent.returncode != 0 and absent.stdout == b""

        assert pod.stop(proxy, 10)[0] == 0
    code, told = pod.stop(sidecar, template["spec"]["terminationGracePeriodSeconds"])
    assert code == 0 and "everything is in the ledger, and shipped" in told, told

    calls = central.rows("query", "--limit", "10")
    assert sorted(call["tool_name"] for call in calls) == ["read", "read", "rm"]
    (run,) = central.rows("runs")
    assert (run["agent_id"], run["env"], run["principal"]) == ("example", "prod", "agent")
    workload = run["workload"] if "workload" in run else json.loads(run["workload_json"])
    assert workload["namespace"] == "payments" and workload["labels"]["subluminal.dev/agent-id"] == "example"
