"""Which pod this is: what the downward API gives, and nothing that a hostile file could do."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from subluminal.host import identity
from subluminal.host.identity import default_env, discover
from subluminal.host.pod import MAX_LABELS, MAX_LABELS_BYTES, LabelsFault, describe, read_labels

IN_POD = {"SUB_RUN_ID": "r", "KUBERNETES_SERVICE_HOST": "10.0.0.1", "USER": "app"}
NAMES = {"POD_NAMESPACE": "payments", "POD_NAME": "agent-7c9f-x2x", "SERVICE_ACCOUNT": "refunds"}


def told(tmp_path: Path, environ: dict[str, str]) -> tuple[dict[str, Any], list[str]]:
    """The workload, and what was said about it; the service account is mounted below `tmp_path`."""
    said: list[str] = []
    return describe(environ, str(tmp_path), said.append), said


def labels_file(tmp_path: Path, content: bytes) -> str:
    path = tmp_path / "labels"
    path.write_bytes(content)
    return str(path)


def test_the_variables_of_the_downward_api_name_the_pod(tmp_path: Path) -> None:
    path = labels_file(tmp_path, b'app="agent"\napp.kubernetes.io/part-of="shop"\n')
    workload, said = told(tmp_path, {**NAMES, "HOSTNAME": "other", "SUB_POD_LABELS_FILE": path})
    assert workload == {
        "namespace": "payments",
        "service_account": "refunds",
        "pod": "agent-7c9f-x2x",
        "labels": {"app": "agent", "app.kubernetes.io/part-of": "shop"},
    }
    assert said == []


def test_without_variables_the_mounted_namespace_and_the_host_s_name_do(tmp_path: Path) -> None:
    (tmp_path / "namespace").write_text("from-mount\n")
    assert told(tmp_path, {"HOSTNAME": "agent-1"}) == ({"namespace": "from-mount", "pod": "agent-1"}, [])
    assert told(tmp_path, {"POD_NAMESPACE": "given"})[0] == {"namespace": "given"}
    assert told(tmp_path / "nowhere", {}) == ({}, [])


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (rb'k="plain"', "plain"),
        (b'k=""', ""),
        (rb'k="a\"b\\c=d"', 'a"b\\c=d'),
        (rb'k="tab\tbell\anew\nline"', "tab\tbell\anew\nline"),
        (rb'k="\x41\u00e9\U0001f600"', "A\u00e9\U0001f600"),
        ('k="\u00e9"'.encode(), "\u00e9"),
        (b'k="crlf"\r', "crlf"),
    ],
)
def test_values_are_unquoted_as_go_quotes_them(tmp_path: Path, line: bytes, value: str) -> None:
    assert read_labels(labels_file(tmp_path, line + b"\n\n")) == {"k": value}


@pytest.mark.parametrize(
    "content",
    [
        b"no equals sign", b"=\"no key\"", b"k=unquoted", b'k="open', b'k="', b'k="a"b"', rb'k="\q"', rb'k="\x4"',
        rb'k="\xzz"', rb'k="\ud800"', rb'k="\U00110000"', b'k="ends in \\"', b"\xff\xfe=\"x\"", b"x" * 400 + b'="v"',
        b"".join(b'k%d="v"\n' % n for n in range(MAX_LABELS + 1)), b'k="' + b"v" * MAX_LABELS_BYTES + b'"', b"\0" * 100,
        rb'k="\UFFFFFFFF"', rb'k="\u +4_1"', rb'k="\x+1"',
    ],
    ids=range(20),
)  # fmt: skip
def test_a_file_that_is_not_the_downward_api_s_is_left_out_with_a_sentence(tmp_path: Path, content: bytes) -> None:
    path = labels_file(tmp_path, content)
    with pytest.raises(LabelsFault):
        read_labels(path)
    workload, (sentence,) = told(tmp_path, {"POD_NAME": "p", "SUB_POD_LABELS_FILE": path})
    assert workload == {"pod": "p"}
    assert path in sentence and "select by labels" in sentence and len(sentence) < 400


@pytest.mark.parametrize("kind", ["fifo", "directory", "device", "endless"])
def test_what_is_no_file_is_neither_waited_for_nor_read_to_its_end(tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / "labels")
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        os.mkdir(path)
    else:
        path = "/dev/zero" if kind == "endless" else "/dev/null"
    workload, (sentence,) = told(tmp_path, {"POD_NAME": "p", "SUB_POD_LABELS_FILE": path})
    assert workload == {"pod": "p"}
    assert path in sentence


def test_a_labels_file_that_was_named_and_is_not_there_is_said(tmp_path: Path) -> None:
    workload, (sentence,) = told(tmp_path, {"POD_NAME": "p", "SUB_POD_LABELS_FILE": str(tmp_path / "none")})
    assert workload == {"pod": "p"} and "SUB_POD_LABELS_FILE" in sentence


def test_names_that_could_not_be_names_are_left_out_and_odd_bytes_can_be_written(tmp_path: Path) -> None:
    workload, _ = told(tmp_path, {"POD_NAMESPACE": "n" * 5000, "POD_NAME": "caf\udcc3", "SERVICE_ACCOUNT": ""})
    assert workload == {"pod": "caf?"}
    json.dumps(workload, ensure_ascii=False).encode()


def test_a_namespace_mounted_by_somebody_hostile_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "namespace").write_bytes(b"\xff" * 1_000_000)
    assert told(tmp_path, {})[0] == {}
    os.unlink(tmp_path / "namespace")
    os.mkfifo(tmp_path / "namespace")
    assert told(tmp_path, {})[0] == {}


def test_a_pod_is_prod_unless_somebody_says_otherwise_or_a_ci_job_runs_in_it() -> None:
    assert discover({**IN_POD, **NAMES}, "h").env == "prod"
    assert discover({**IN_POD, "SUB_ENV": "dev"}, "h").env == "dev"
    job = discover({**IN_POD, **NAMES, "CI": "true", "GITHUB_ACTIONS": "true", "GITHUB_RUN_ID": "1"}, "h")
    assert job.env == "ci"
    assert job.workload == {"ci_provider": "github_actions", "job_id": "1"}
    assert default_env({"CI": "false", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}) == "prod"


def test_the_mounted_service_account_is_enough_where_a_client_scrubs_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "namespace").write_text("payments")
    monkeypatch.setattr(identity, "_SERVICE_ACCOUNT_DIR", str(tmp_path))
    found = discover({"SUB_RUN_ID": "r", "USER": "app"}, "h")
    assert (found.env, found.workload, found.principal) == ("prod", {"namespace": "payments"}, "app")
