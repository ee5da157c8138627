"""What is refused above all that was learned: secrets always, the rest unless `SUPPORT` runs needed it.

Evidence cannot speak of what never happened, so this is what people know: where keys lie, and what a shell line, a
statement or an argument does that most work never asks for. Every entry is one regex that RE2 and Python read alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import re2
from msgspec import Struct

from subluminal.control.suggest import SUPPORT

# Names of files and directories that hold keys, passwords or what runs by itself; at the start of a name in a path, and
# in a line behind a blank, a quote or a sign.
SECRETS = (
    r"(?i)(?:^|[/\\\s\"'=:@~(,])\.(?:ssh|aws|azure|gnupg|kube|docker|netrc|npmrc|pypirc|pgpass|git-credentials|env|git"
    r"|subluminal|password-store|config/gcloud)(?:\.[\w-]+)?(?:[/\\\s\"':;|&),]|$)",
    r"(?i)(?:^|[/\\\s\"'=:@~])(?:id_(?:rsa|ed25519|ecdsa|dsa)|authorized_keys|\.?credentials(?:\.\w+)?|secrets?\.\w+"
    r"|[\w.-]+\.(?:pem|p12|pfx|keystore|kdbx|ppk))(?:[\s\"':;|&),]|$)",
    r"/etc/(?:shadow|gshadow|sudoers|ssh)|/proc/[^/\s]+/(?:environ|mem)|/var/run/secrets|/run/secrets",
    r"\.(?:bash|zsh|python|psql|mysql)_history",
)


class Entry(Struct, frozen=True):
    name: str
    words: str
    regex: str


# Of a path that is written to: what runs by itself later.
WRITES = (
    Entry(
        "shell-start",
        "files that a shell runs at its start",
        r"/\.(?:bashrc|bash_profile|profile|zshrc|zshenv|zprofile)$",
    ),
    Entry(
        "ci",
        "what CI runs",
        r"(?:^|/)(?:\.github/(?:workflows|actions)/|\.gitlab-ci|\.circleci/|Jenkinsfile|azure-pipelines)",
    ),
    Entry(
        "hooks",
        "hooks and tasks of editors",
        r"(?:^|/)(?:\.husky/|\.vscode/|\.idea/|\.devcontainer/|\.pre-commit-config)",
    ),
    Entry(
        "agents",
        "settings and instructions of agents",
        r"(?:^|/)(?:\.claude/|\.codex/|\.cursor/|\.mcp\.json|CLAUDE\.md|AGENTS\.md)",
    ),
    Entry(
        "autostart", "what the system starts", r"/(?:cron[\w.]*|systemd|LaunchAgents|autostart|init\.d|sites-enabled)/"
    ),
)

# Of any path that is opened.
FILES = (
    Entry("production", "files of production", r"(?i)(?:^|[/_.-])(?:prod|production|live)(?:[/_.-]|$)"),
    Entry("private", "files that are called private",
          r"(?i)(?:^|[/_.-])(?:private|confidential|payroll|salary|salaries|hr)(?:[/_.-]|$)"),
    Entry("secret-names", "files that are called after secrets",
          r"(?i)(?:^|[/_.-])(?:secrets?|passwords?|passwd|credentials?|keys?|keyring|wallet|vault)(?:[/_.-]|$)"),
    Entry("backups", "backups and dumps",
          r"(?i)(?:^|[/_.-])(?:backups?|dumps?|bak|sqldump)(?:[/_.-]|$)|\.(?:sql|bak|dump)$"),
)  # fmt: skip

# Of a text that is sent: what was not meant for it.
TEXTS = (
    Entry("told-secrets", "secrets that are told",
          r"(?i)\b(?:password|passwd|passphrase|api[_ -]?key|secret|token|credentials?)\b[^.\n]{0,20}(?:\bis\b|:|=)"),
    Entry("tokens", "what looks like a key",
          r"AKIA[0-9A-Z]{12}|gh[pousr]_\w{10}|github_pat_|xox[abprs]-|-----BEGIN |eyJ[\w-]{12,}\.|sk-[\w-]{16}|glpat-"),
    Entry("blobs", "long runs of letters and digits", r"[A-Za-z0-9+/_=-]{120}"),
    Entry("instructions", "words to whoever reads it with tools",
          r"(?i)\bignore (?:all |any )?(?:previous|prior|earlier) |<(?:script|iframe|important|system)\b"
          r"|javascript:|data:text/"),
)  # fmt: skip

_REST = r"[^|;&\n]*"
LINES = (
    Entry("push", "git push", rf"\bgit\b{_REST}\spush\b"),
    Entry("force-push", "git push by force", rf"\bgit\b{_REST}\spush\b{_REST}(?:\s-\w*f|--force|\s\+\w)"),
    Entry("remote", "another remote of git", rf"\bgit\b{_REST}\sremote\s+(?:add|set-url)"),
    Entry("git-config", "git settings that run programs or hold names",
          rf"\bgit\b{_REST}\s(?:-c\s|config\s{_REST}(?:--global|--system|hook|pager|editor|ssh|credential|alias))"),
    Entry("discard", "git commands that lose work",
          rf"\bgit\b{_REST}\s(?:reset\s+--hard|clean\s+-\w*f|filter-branch|update-ref|reflog\s+expire|branch\s+-D)"),
    Entry("remove-much", "removal of whole trees outside",
          r"\brm\s+(?:-\S+\s+)*[\"']?(?:/|~|\$HOME|\$\{HOME|\*|\.\.?)/?\*?[\"']?(?:\s|;|&|$)"),
    Entry("inline-code", "code given to an interpreter",
          r"\b(?:python[0-9.]*|node|deno|bun|perl|ruby|php|osascript)\s+(?:-\w+\s+)*-(?:\w*[ce]|r|-eval|p)\b"),
    Entry("upload", "requests that send",
          rf"\b(?:curl|wget|http|https|xh)\b{_REST}(?:\s-d\b|--data|\s-F\b|--form|\s-T\b|--upload|--post|--json|\s-X\s*[PD]|--request|@)"),
    Entry("publish", "publishing and logins of package managers",
          r"\b(?:npm|pnpm|yarn|cargo|gem|twine|poetry|uv|docker|podman|helm)\s+(?:publish|upload|login|adduser|token|owner|push)\b"),
    Entry("install", "installing packages",
          r"\b(?:pip[0-9.]*|pipx|npm|pnpm|yarn|uv|gem|cargo|go|brew|apt|apt-get|dnf|apk)\s+(?:-\S+\s+)*(?:pip\s+)?(?:install|add|i|get)\b"),
    Entry("containers", "containers with rights on this machine",
          rf"\b(?:docker|podman)\b{_REST}(?:--privileged|-v\s*/|--volume|--mount|docker\.sock|--net=host|--pid)"),
    Entry("cluster", "changes of a cluster",
          rf"\b(?:kubectl|helm|oc)\b{_REST}\s(?:delete|exec|apply|patch|edit|scale|drain|cp|create|replace|port-forward|rollout|install|upgrade|debug|proxy|get\s+secrets?)\b"),
    Entry("infrastructure", "changes of infrastructure",
          rf"\b(?:terraform|tofu|pulumi|ansible\S*)\b{_REST}\s?(?:apply|destroy|import|state|up|-m\s)\b"),
    Entry("clouds", "command lines of clouds", r"(?:^|[|;&(]\s*)(?:aws|gcloud|az|gsutil|doctl|flyctl|heroku|vercel)\s"),
    Entry("hosting", "secrets, logins and releases at a host",
          r"\b(?:gh|glab)\s+(?:secret|auth|repo\s+(?:delete|create|edit|deploy-key)|api|release|workflow|ssh-key|gist|variable)\b"),
    Entry("environment", "the environment as a whole",
          r"(?:^|[|;&(]\s*)(?:env|printenv|set|export|export\s+-p|declare\s+-x)\s*(?:$|[|;&>)])"),
    Entry("decode", "decoding into programs",
          r"\bbase64\s+(?:-\w*[dD]|--decode)|\bxxd\s+-\w*r|\bopenssl\s+(?:enc|s_client|base64)"),
    Entry("rights", "wide rights", r"\b(?:chmod\s+(?:-\S+\s+)*(?:[0-7]?[0-7]?[0-7]?7\b|[ugoa]*\+s)|setfacl|chown)\b"),
    Entry("find-run", "find that removes or runs", rf"\bfind\b{_REST}\s-(?:delete|exec|execdir|ok)\b"),
    Entry("outside", "files of the home and the system",
          r"(?:^|[\s=\"'<>(:@])(?:~|\$HOME|\$\{HOME\}|/home|/root|/Users|/etc|/var|/proc|/sys|/boot|/dev/sd|/mnt|/srv|/opt)(?:/|\b)"),
    Entry("above", "files above the project", r"(?:^|[\s=\"'<>(:@])\.\.(?:/|\s|$)"),
    Entry("background", "what outlives the call", r"\b(?:nohup|setsid|disown|screen|tmux|crontab|at\s+now)\b"),
    Entry("seek-secrets", "looking for secrets",
          rf"(?i)\b(?:grep|rg|ag|ack|find|locate|strings|git)\b{_REST}(?:passw|secret|api.?key|credential|private.key|access.?token|aws_)"),
    Entry("big-targets", "targets that deploy, release or remove",
          rf"(?i)\b(?:make|just|task|rake|invoke|npm|pnpm|yarn|gradle|mvn|fastlane|cap)\b{_REST}(?:deploy|publish|release|prod|destroy|migrate|rollback|upload|purge)"),
    Entry("git-reach", "git commands that fetch from or reach elsewhere",
          rf"\bgit\b{_REST}\s(?:clone|fetch|pull|submodule|bundle|archive|send-email|request-pull|daemon|credential|worktree|lfs)\b"),
    Entry("git-history", "git commands that change history",
          rf"\bgit\b{_REST}\s(?:rebase|cherry-pick|merge|tag\s|reset|revert|gc|prune|commit{_REST}--amend|replace|notes)\b"),
    Entry("runners", "programs that fetch and run packages",
          r"(?:^|[|;&(]\s*)(?:npx|bunx|pnpx|uvx|pipx|dlx)\s|\b(?:pnpm|yarn)\s+dlx\b"),
    Entry("long-words", "long runs of letters and digits", r"[A-Za-z0-9+=_-]{100}"),
    Entry("resolve", "names that carry data", r"\b(?:dig|nslookup|host|ping)\s"),
)  # fmt: skip

STATEMENTS = (
    Entry("structure", "statements that change structure or rights",
          r"(?i)\b(?:drop|truncate|alter|grant|revoke|vacuum|reindex)\b"),
    Entry("change", "statements that change rows",
          r"(?i)\b(?:insert\s+into|update\s+[\w.\"]+\s+set|delete\s+from|merge\s+into|replace\s+into)\b"),
    Entry("files", "statements that reach files and programs",
          r"(?i)\b(?:outfile|dumpfile|load_file|load\s+data|copy|pg_read\w*|pg_ls\w*|pg_sleep|lo_import|lo_export|attach|"
          r"xp_cmdshell|dblink\w*|load_extension)\b"),
    Entry("catalogues", "the catalogue of the database",
          r"(?i)\b(?:information_schema|pg_catalog|pg_shadow|pg_authid|pg_user|sqlite_master|mysql\.user|sys\.)"),
    Entry("secrets", "columns of secrets",
          r"(?i)\b\w*(?:passw|passwd|pwd_|secret|api_?key|access_?token|private_?key|ssn\b|credit_?card|card_number|cvv|iban\b)\w*"),
    Entry("join-results", "results of other tables", r"(?i)\bunion\b"),
    Entry("comments", "comments in statements", r"--|/\*"),
)  # fmt: skip

# Arguments that widen what a tool does, or send what it does elsewhere.
SWITCHES = (
    "admin", "allow_all", "as_user", "auth", "bcc", "bypass", "callback", "callback_url", "dangerouslyDisableSandbox",
    "disable_safety", "force", "forward_to", "hard", "impersonate", "insecure", "no_verify", "on_behalf_of",
    "overwrite", "password", "permanent", "privileged", "proxy", "purge", "recursive", "redirect_url", "run_as",
    "run_as_root", "sandbox_permissions", "skip_checks", "sudo", "token", "unsafe", "upload_to", "webhook",
    "webhook_url", "with_escalated_permissions",
)  # fmt: skip


def unneeded(
    entries: tuple[Entry, ...], texts: Iterable[dict[str, list[Any]]]
) -> tuple[list[Entry], list[tuple[Entry, int]]]:
    """The entries that fewer than SUPPORT runs needed, and the others with their runs."""
    runs: list[set[int]] = [set() for _ in entries]
    for group in texts:
        for text, (_, used) in group.items():
            for number in _matching(entries, text):
                runs[number] |= used
    kept = [entry for entry, used in zip(entries, runs, strict=True) if len(used) < SUPPORT]
    needed = [(entry, len(used)) for entry, used in zip(entries, runs, strict=True) if len(used) >= SUPPORT]
    return kept, needed


# The same texts are looked at for every part of the runs that is learned from.
@lru_cache(100_000)
def _matching(entries: tuple[Entry, ...], text: str) -> tuple[int, ...]:
    """One search for nearly all texts: most meet no entry."""
    whole, each = _compiled(entries)
    encoded = text.encode("utf-8", "replace")
    if whole.search(encoded) is None:
        return ()
    return tuple(number for number, search in enumerate(each) if search(encoded) is not None)


@lru_cache(16)
def _compiled(entries: tuple[Entry, ...]) -> tuple[Any, list[Any]]:
    whole = re2.compile("|".join(f"(?:{entry.regex})" for entry in entries).encode())
    return whole, [re2.compile(entry.regex.encode()).search for entry in entries]
