"""Which CI job this is, from each provider's own variables, and never a credential."""

from __future__ import annotations

import pytest

from subluminal.host.ci import PROVIDERS, detect


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_provider_is_known_by_its_own_variables(provider: str) -> None:
    proof, job, repo, branch, actor = PROVIDERS[provider]
    environ = {proof: "true", job[-1]: "j1", repo[-1]: "o/r", branch[-1]: "main", actor[-1]: "ada"}
    found = detect(environ)
    assert found is not None
    assert found.workload == {"ci_provider": provider, "job_id": "j1", "repo": "o/r", "branch": "main"}
    assert found.principal == "ada"


def test_what_is_not_told_is_absent() -> None:
    found = detect({"GITHUB_ACTIONS": "true", "GITHUB_ACTOR": ""})
    assert found is not None
    assert (found.workload, found.principal) == ({"ci_provider": "github_actions"}, None)


@pytest.mark.parametrize("value", ["", "0", "false", "False", "no", "off"])
def test_no_ci_is_no_job(value: str) -> None:
    assert detect({"CI": value}) is None
    assert detect({}) is None
    assert detect({"GITHUB_ACTIONS": value}) is None


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://x-token:ghp_secret@host/o/r.git", "https://host/o/r.git"),
        ("https://a@b:c@host:8443/o/r", "https://host:8443/o/r"),
        ("https://host/o/r@v1", "https://host/o/r@v1"),
        ("git@host:o/r.git", "git@host:o/r.git"),
    ],
)
def test_a_token_in_a_repository_address_is_not_recorded(address: str, shown: str) -> None:
    found = detect({"JENKINS_URL": "x", "GIT_URL": address})
    assert found is not None
    assert found.workload["repo"] == shown
