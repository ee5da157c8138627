"""Which CI job this is: provider, job, repository, branch and actor from the provider's own variables.

The words are the contract's (§1.3.1): `ci_provider`, `job_id`, `repo`, `branch`. What is not told is absent.
"""

from __future__ import annotations

from subluminal.host.identity import is_ci, is_set

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class Job:
    __slots__ = ("principal", "workload")

    def __init__(self, principal: str | None, workload: dict[str, Any]) -> None:
        self.principal = principal
        self.workload = workload


# provider -> (the variable that proves it, job id, repository, branch, actor); several names: the first that is set.
_Names = tuple[str, ...]
PROVIDERS: dict[str, tuple[str, _Names, _Names, _Names, _Names]] = {
    "github_actions": ("GITHUB_ACTIONS", ("GITHUB_RUN_ID",), ("GITHUB_REPOSITORY",),
        ("GITHUB_HEAD_REF", "GITHUB_REF_NAME"), ("GITHUB_ACTOR",)),
    "gitlab": ("GITLAB_CI", ("CI_JOB_ID",), ("CI_PROJECT_PATH",),
        ("CI_MERGE_REQUEST_SOURCE_BRANCH_NAME", "CI_COMMIT_REF_NAME"), ("GITLAB_USER_LOGIN",)),
    "jenkins": ("JENKINS_URL", ("BUILD_TAG", "BUILD_ID"), ("GIT_URL",),
        ("CHANGE_BRANCH", "BRANCH_NAME", "GIT_BRANCH"), ("CHANGE_AUTHOR", "BUILD_USER_ID")),
    "buildkite": ("BUILDKITE", ("BUILDKITE_JOB_ID", "BUILDKITE_BUILD_ID"), ("BUILDKITE_REPO",),
        ("BUILDKITE_BRANCH",), ("BUILDKITE_BUILD_CREATOR", "BUILDKITE_UNBLOCKER")),
    "circleci": ("CIRCLECI", ("CIRCLE_WORKFLOW_JOB_ID", "CIRCLE_BUILD_NUM"),
        ("CIRCLE_REPOSITORY_URL", "CIRCLE_PROJECT_REPONAME"), ("CIRCLE_BRANCH",), ("CIRCLE_USERNAME",)),
    "azure": ("TF_BUILD", ("SYSTEM_JOBID", "BUILD_BUILDID"), ("BUILD_REPOSITORY_NAME",),
        ("SYSTEM_PULLREQUEST_SOURCEBRANCH", "BUILD_SOURCEBRANCHNAME"), ("BUILD_REQUESTEDFOR",)),
}  # fmt: skip
_GENERIC = ("CI", ("CI_JOB_ID", "BUILD_ID"), ("CI_REPO",), ("CI_BRANCH",), ("CI_ACTOR",))


def detect(environ: Mapping[str, str]) -> Job | None:
    """The job, or None when this is no CI at all."""
    for provider, names in PROVIDERS.items():
        if is_set(environ, names[0]):
            return _job(environ, provider, names)
    if is_ci(environ):
        return _job(environ, "generic", _GENERIC)
    return None


def _job(environ: Mapping[str, str], provider: str, names: tuple[str, _Names, _Names, _Names, _Names]) -> Job:
    workload: dict[str, Any] = {"ci_provider": provider}
    for word, variables in zip(("job_id", "repo", "branch"), names[1:4], strict=True):
        value = _first(environ, variables)
        if value:
            workload[word] = _without_credentials(value)
    return Job(_first(environ, names[4]), workload)


def _first(environ: Mapping[str, str], names: _Names) -> str | None:
    return next((environ[name] for name in names if environ.get(name)), None)


def _without_credentials(value: str) -> str:
    """A repository address may hold a token before its host; identity is recorded, credentials never."""
    scheme, separator, rest = value.partition("://")
    if not separator:
        return value
    host, slash, path = rest.partition("/")
    return scheme + separator + host.rpartition("@")[2] + slash + path
