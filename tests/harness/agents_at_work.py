"""Runs of agents whose behaviour is known: nine classes of work, with Zipf tails, projects that begin late, and abuses
planted by whoever wants to know whether a suggested policy stops them.

    runs_of(seed, count)            legitimate runs as transcripts tell them, in the order of time
    load_abuses(path)               what is planted: YAML, see tests/fixtures/suggest/README.md
    planted(runs, abuses, seed, n)  the same runs, with each abuse in `n` of them
    measured(...)                   what a suggested policy does with all that, by the real engine

What agents do here does not depend on how policies are suggested.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from msgspec import json, structs

from subluminal.agents.transcripts.seen import SeenCall, SeenRun
from subluminal.contracts.moments import rfc3339
from subluminal.control.suggest.fitting import TRY, learned, suggest
from subluminal.control.suggest.gathering import general_run

START_MS = 1_760_000_000_000
PEOPLE = [f"/home/{name}" for name in ("ada", "grace", "linus", "margaret", "edsger", "barbara")]


class Zipf:
    """Words of which each is picked 1 / rank ** s times as often as the first."""

    def __init__(self, words: list[str], s: float) -> None:
        self.words = words
        self._weights = [1 / (rank**s) for rank in range(1, len(words) + 1)]

    def pick(self, rng: random.Random) -> str:
        return rng.choices(self.words, self._weights)[0]


def _names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


_WORDS = (
    "alpha", "beta", "order", "invoice", "user", "account", "session", "cache", "index", "queue", "report", "ledger",
    "token", "batch", "event", "metric", "page",
)  # fmt: skip
DOC_HOSTS = Zipf(
    [
        "docs.python.org", "developer.mozilla.org", "pkg.go.dev", "docs.rs", "stackoverflow.com", "github.com",
        "react.dev", "kubernetes.io", "www.postgresql.org", "nodejs.org", *(f"docs.lib{n}.dev" for n in range(150)),
    ],
    1.6,
)  # fmt: skip
REPOS = Zipf(["acme/web", "acme/api", "acme/infra", "acme/mobile", *(f"acme/service-{n}" for n in range(40))], 1.4)
LINES = Zipf(
    [
        "git status", "ls -la", "pytest -q", "git diff", "grep -rn TODO src", "cat README.md", "npm test", "make test",
        "git log --oneline -5", "ruff check .", "sed -n 1,80p src/app.py", "head -50 src/app.py", "wc -l src/app.py",
        "node scripts/check.js", "python -m pytest tests", "git add -A && git commit -m wip", "find . -name '*.py'",
        "rg TODO | head", "npm run build", "tsc --noEmit", "go test ./...", "cargo test", "docker ps", "tree -L 2",
        "jq . package.json", "diff a.txt b.txt", "du -sh .", "awk '{print $1}' a.txt", "tail -20 build.log",
        "which node", "git stash list", "terraform plan", "kubectl get pods", "helm list", "php -v", "ruby -v",
        "bundle list", "gradle tasks", "mvn -v", "dotnet --info", "swift --version", "ps aux | sort", "uname -a",
        "date", "lsof -i :3000", "shellcheck scripts/a.sh", "yamllint .", "mdl docs", "protoc --version",
        "xmllint a.xml", "sqlite3 a.db .tables",
    ],
    1.35,
)  # fmt: skip
TABLES = Zipf(["orders", "customers", "invoices", "events", "products", *_names("fact_", 20)], 1.3)
CHANNELS = Zipf(["#support", "#incidents", "#deploys", "#general", "#data", *_names("#project-", 20)], 1.6)
NAMESPACES = Zipf(["web", "api", "workers", "staging", "billing"], 1.0)
STAGES = ["lead", "qualified", "proposal", "won", "lost"]
DOMAINS = Zipf(["acme.example", "partner.example", *(f"customer-{n}.example" for n in range(40))], 1.7)


class Work:
    """One run being made: who, where, when."""

    def __init__(self, rng: random.Random, at_ms: int, when: float) -> None:
        self.rng = rng
        self.when = when  # 0 is the first run, 1 the last
        self.home = rng.choice(PEOPLE)
        project = _project(rng, when)
        self.root = f"{self.home}/work/{project}"
        self.project = project
        self._at = at_ms
        self.calls: list[SeenCall] = []

    def call(self, server: str, tool: str, **args: Any) -> None:
        self._at += self.rng.randint(800, 30_000)
        size = len(json.encode(args))
        self.calls.append(SeenCall(server, tool, args, size, self._at, self.root, ok=True))

    def sentence(self, least: int = 4, most: int = 24) -> str:
        return " ".join(self.rng.choices(_WORDS, k=self.rng.randint(least, most))).capitalize() + "."

    def source(self) -> str:
        rng = self.rng
        directory = rng.choices(["src", "tests", "docs", "scripts", "config", "migrations"], [10, 6, 3, 2, 2, 1])[0]
        name = rng.choice(_WORDS) + rng.choice(["", "_view", "_model", "_test", f"_{rng.randint(1, 99)}"])
        below = rng.choice(["", "", rng.choice(_WORDS) + "/"])
        return f"{directory}/{below}{name}.{rng.choice(['py', 'ts', 'md', 'go'])}"


def _project(rng: random.Random, when: float) -> str:
    """A new project begins every so often, and a tenth of the work is in what has just begun."""
    known = 6 + int(when * 30)
    return (
        f"project-{known - 1 - int(min(rng.expovariate(1.5), 5))}"
        if rng.random() < 0.1
        else f"project-{rng.randrange(6)}"
    )


def coding(work: Work) -> None:
    for _ in range(work.rng.randint(10, 45)):
        path = work.source()
        kind = work.rng.random()
        if kind < 0.4:
            work.call("fs", "read_file", path=f"{work.root}/{path}")
        elif kind < 0.55:
            lines = "\n".join(work.sentence() for _ in range(work.rng.randint(2, 40)))
            work.call("fs", "write_file", path=f"{work.root}/{path}", content=lines)
        elif kind < 0.7:
            edits = [{"oldText": work.sentence(), "newText": work.sentence()} for _ in range(work.rng.randint(1, 3))]
            work.call("fs", "edit_file", path=f"{work.root}/{path}", edits=edits)
        elif kind < 0.78:
            work.call("fs", "search_files", path=work.root, pattern=work.rng.choice(_WORDS))
        else:
            work.call("builtin", "Bash", command=LINES.pick(work.rng), description=work.sentence(2, 6))


def reviewing(work: Work) -> None:
    repo = REPOS.pick(work.rng)
    if work.when > 0.75 and work.rng.random() < 0.1:
        repo = f"acme/new-{work.rng.randrange(4)}"
    owner, _, name = repo.partition("/")
    number = work.rng.randint(1, 4000)
    work.call("github", "get_pull_request", owner=owner, repo=name, pull_number=number)
    for _ in range(work.rng.randint(3, 14)):
        if work.rng.random() < 0.6:
            work.call("github", "get_file_contents", owner=owner, repo=name, path=work.source(), ref="main")
        else:
            work.call("github", "list_commits", owner=owner, repo=name, per_page=work.rng.choice([10, 20, 30, 50]))
    work.call("github", "add_comment", owner=owner, repo=name, issue_number=number, body=work.sentence(8, 80))


def supporting(work: Work) -> None:
    for _ in range(work.rng.randint(2, 6)):
        ticket = f"SUP-{work.rng.randint(1000, 99999)}"
        work.call("helpdesk", "get_ticket", ticket_id=ticket)
        work.call("helpdesk", "search_articles", query=work.sentence(2, 5), limit=work.rng.choice([5, 10, 20]))
        work.call("helpdesk", "reply", ticket_id=ticket, body=work.sentence(10, 60), public=work.rng.random() < 0.7)
    work.call("slack", "post_message", channel=CHANNELS.pick(work.rng), text=work.sentence(5, 30))


def analysing(work: Work) -> None:
    for _ in range(work.rng.randint(4, 18)):
        table, other = TABLES.pick(work.rng), TABLES.pick(work.rng)
        column = work.rng.choice(["id", "created_at", "total", "status", "country"])
        most = work.rng.choice([10, 50, 100, 500])
        sql = f"SELECT {column}, count(*) FROM {table} WHERE {column} IS NOT NULL GROUP BY {column} LIMIT {most}"
        if work.rng.random() < 0.3:
            sql = f"SELECT a.{column} FROM {table} a JOIN {other} b ON a.id = b.id ORDER BY 1 LIMIT 100"
        work.call("warehouse", "query", sql=sql, timeout_s=work.rng.choice([10, 30, 60]))
    name = f"{work.rng.choice(_WORDS)}-{work.rng.randint(1, 999)}.csv"
    path = f"/srv/reports/team-{work.rng.randrange(4)}/{name}"
    work.call("warehouse", "save_report", path=path, format=work.rng.choice(["csv", "parquet"]))


def researching(work: Work) -> None:
    for _ in range(work.rng.randint(3, 12)):
        url = f"https://{DOC_HOSTS.pick(work.rng)}/{work.rng.choice(_WORDS)}/{work.rng.choice(_WORDS)}.html"
        work.call("fetch", "fetch", url=url, max_length=work.rng.choice([5000, 10000, 20000]))
    work.call(
        "fs", "write_file", path=f"{work.root}/docs/notes/{work.rng.choice(_WORDS)}.md", content=work.sentence(40, 300)
    )


def operating(work: Work) -> None:
    namespace = NAMESPACES.pick(work.rng)
    work.call("k8s", "list_pods", namespace=namespace)
    for _ in range(work.rng.randint(2, 8)):
        pod = f"{namespace}-{work.rng.choice(_WORDS)}-{work.rng.getrandbits(20):05x}"
        work.call("k8s", "pod_logs", namespace=namespace, pod=pod, tail_lines=work.rng.choice([50, 100, 200, 500]))
        if work.rng.random() < 0.2:
            work.call(
                "k8s", "describe", namespace=namespace, kind=work.rng.choice(["pod", "deployment", "service"]), name=pod
            )
    if work.rng.random() < 0.3:
        work.call("k8s", "restart", namespace=namespace, deployment=f"{namespace}-{work.rng.choice(_WORDS)}")
    work.call("slack", "post_message", channel="#incidents", text=work.sentence(5, 30))


def selling(work: Work) -> None:
    for _ in range(work.rng.randint(2, 7)):
        contact = f"c-{work.rng.randint(1, 9999):05d}"
        work.call("crm", "get_contact", contact_id=contact)
        if work.rng.random() < 0.6:
            work.call(
                "crm",
                "update_deal",
                contact_id=contact,
                stage=work.rng.choice(STAGES),
                amount=work.rng.randint(1, 400) * 50,
            )
        if work.rng.random() < 0.5:
            to = f"{work.rng.choice(_WORDS)}.{work.rng.choice(_WORDS)}@{DOMAINS.pick(work.rng)}"
            work.call("mail", "send_email", to=to, subject=work.sentence(2, 8), body=work.sentence(20, 150))


def browsing(work: Work) -> None:
    site = work.rng.choices(
        ["http://localhost:3000", "https://staging.acme.example", "https://www.acme.example"], [6, 3, 1]
    )[0]
    work.call("browser", "navigate", url=f"{site}/{work.rng.choice(_WORDS)}")
    for _ in range(work.rng.randint(4, 20)):
        element = f"{work.rng.choice(['button', 'link', 'field'])} {work.rng.choice(_WORDS)}"
        if work.rng.random() < 0.6:
            work.call("browser", "click", element=element, ref=f"e{work.rng.randint(1, 400)}")
        elif work.rng.random() < 0.6:
            work.call("browser", "type", ref=f"e{work.rng.randint(1, 400)}", text=work.sentence(1, 6))
        else:
            work.call("browser", "screenshot", full_page=work.rng.random() < 0.4)


def releasing(work: Work) -> None:
    work.call("git", "git_status", repo_path=work.root)
    work.call("git", "git_diff", repo_path=work.root, target="main", context_lines=work.rng.choice([3, 5, 10]))
    work.call(
        "fs",
        "edit_file",
        path=f"{work.root}/CHANGELOG.md",
        edits=[{"oldText": "## Unreleased", "newText": work.sentence(4, 30)}],
    )
    work.call("git", "git_add", repo_path=work.root, files=["CHANGELOG.md", work.source()])
    work.call("git", "git_commit", repo_path=work.root, message=work.sentence(4, 12))
    tag = f"v{work.rng.randint(0, 9)}.{work.rng.randint(0, 40)}.{work.rng.randint(0, 20)}"
    work.call("git", "git_create_tag", repo_path=work.root, name=tag)
    if work.rng.random() < 0.1:
        work.call(
            "github",
            "create_release",
            owner="acme",
            repo=REPOS.pick(work.rng).partition("/")[2],
            tag=tag,
            body=work.sentence(10, 60),
        )


CLASSES: list[tuple[Callable[[Work], None], int]] = [
    (coding, 30), (reviewing, 14), (supporting, 10), (analysing, 10), (researching, 9), (operating, 9), (selling, 7),
    (browsing, 6), (releasing, 5),
]  # fmt: skip


def runs_of(seed: int, count: int = 1_000) -> list[SeenRun]:
    rng = random.Random(seed)
    runs = []
    for number in range(count):
        work = Work(rng, START_MS + number * 3_600_000, number / count)
        rng.choices([make for make, _ in CLASSES], [weight for _, weight in CLASSES])[0](work)
        if rng.random() < 0.03:  # once in a while somebody tries a tool that nobody else uses
            work.call(
                f"side-{rng.randrange(30)}", rng.choice(["lookup", "convert", "render"]), text=work.sentence(1, 4)
            )
        runs.append(SeenRun(f"run-{number:04d}", "claude", work.calls))
    return runs


class Abuse(NamedTuple):
    name: str
    calls: list[dict[str, Any]]

    def calls_in(self, run: SeenRun) -> list[SeenCall]:
        """As they would be made at the end of a run, with its places."""
        root = run.calls[-1].cwd
        home = "/".join(root.split("/")[:3])
        at_ms = run.calls[-1].at_ms
        made = []
        for call in self.calls:
            args = _placed(call.get("args", {}), root, home)
            for _ in range(call.get("repeat", 1)):
                at_ms += call.get("every_ms", 1_000)
                size = len(json.encode(args))
                made.append(SeenCall(call["server_name"], call["tool_name"], args, size, at_ms, root, ok=True))
        return made


def _placed(value: Any, root: str, home: str) -> Any:
    if isinstance(value, str):
        return value.replace("{root}", root).replace("{home}", home)
    if isinstance(value, dict):
        return {key: _placed(item, root, home) for key, item in value.items()}
    return [_placed(item, root, home) for item in value] if isinstance(value, list) else value


def load_abuses(path: str) -> list[Abuse]:
    with open(path, encoding="utf-8") as file:
        return [Abuse(entry["name"], entry["calls"]) for entry in yaml.safe_load(file)["abuses"]]


def planted(runs: list[SeenRun], abuses: list[Abuse], seed: int, times: int = 2, before: float = 0.8) -> list[SeenRun]:
    """Each abuse in `times` runs of the older part: what is learned from."""
    rng = random.Random(seed * 7 + 1)
    changed = list(runs)
    for abuse in abuses:
        for number in rng.sample(range(int(len(runs) * before)), times):
            run = changed[number]
            changed[number] = structs.replace(run, calls=[*run.calls, *abuse.calls_in(run)])
    return changed


class Measured(NamedTuple):
    refusals: float
    near_miss_admission: float
    recall: float
    reached: bool
    missed: list[str]


def measured(runs: list[SeenRun], abuses: list[Abuse], seed: int, times: int, target: float = 0.02) -> Measured:
    """What the policy that is learned on the older runs does with the newest, and with abuses at their end."""
    seen = planted(runs, abuses, seed, times) if times else runs
    general = [general_run(run) for run in seen]
    found = suggest(general, target)
    judge = learned(general[: int(len(general) * TRY)], found.levels)[2]
    rng = random.Random(seed * 11 + 3)
    missed = []
    for abuse in abuses:
        victim = rng.choice(runs[int(len(runs) * TRY) :])
        attacked = general_run(structs.replace(victim, calls=[*victim.calls, *abuse.calls_in(victim)]))
        own = attacked.calls[len(victim.calls) :]
        if not any(call in own for call, _ in judge.refusals(attacked)):
            missed.append(abuse.name)
    proof = found.proof
    assert proof is not None and proof.refusals is not None and proof.near_miss_admission is not None
    return Measured(
        proof.refusals, proof.near_miss_admission, 1 - len(missed) / len(abuses), bool(found.reached), missed
    )


def as_transcripts(runs: list[SeenRun], home: Path) -> None:
    """Runs as both clients would have left them, every other one by each; built-in tools but Bash are Claude's."""
    for number, run in enumerate(runs):
        if number % 2 and all(call.server_name != "builtin" or call.tool_name == "Bash" for call in run.calls):
            path = home / ".codex" / "sessions" / "2026" / "01" / "31" / f"rollout-{run.run_id}.jsonl"
            lines = _codex_lines(run)
        else:
            path = home / ".claude" / "projects" / run.calls[0].cwd.replace("/", "-") / f"{run.run_id}.jsonl"
            lines = _claude_lines(run)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(json.encode(line) + b"\n" for line in lines))


def _claude_lines(run: SeenRun) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for number, call in enumerate(run.calls):
        own = {"cwd": call.cwd, "sessionId": run.run_id, "timestamp": rfc3339(call.at_ms)}
        use_id = f"{run.run_id}-{number}"
        name = call.tool_name if call.server_name == "builtin" else f"mcp__{call.server_name}__{call.tool_name}"
        use = {"type": "tool_use", "id": use_id, "name": name, "input": call.args}
        result = {"type": "tool_result", "tool_use_id": use_id, "content": "done", "is_error": call.ok is False}
        lines.append({"type": "assistant", **own, "message": {"id": use_id, "content": [use]}})
        lines.append({"type": "user", **own, "message": {"content": [result]}})
    return lines


def _codex_lines(run: SeenRun) -> list[dict[str, Any]]:
    meta = {"id": run.run_id, "cwd": run.calls[0].cwd, "cli_version": "0.166.0"}
    lines: list[dict[str, Any]] = [{"type": "session_meta", "payload": meta}]
    for number, call in enumerate(run.calls):
        shell = call.server_name == "builtin"
        args = {"cmd": call.args["command"]} if shell else call.args
        said = {"type": "function_call", "name": "exec_command" if shell else call.tool_name}
        said |= {"arguments": json.encode(args).decode(), "call_id": f"{run.run_id}-{number}"}
        if not shell:
            said["namespace"] = f"mcp__{call.server_name}"
        lines.append({"timestamp": rfc3339(call.at_ms), "type": "response_item", "payload": said})
    return lines
