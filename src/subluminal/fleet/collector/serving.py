"""The collector as a process: where it listens, with which certificates, and how it ends."""

from __future__ import annotations

import asyncio
import logging
import signal
import ssl
from collections.abc import Callable

from aiohttp import web
from msgspec import Struct

from subluminal.contracts.errors import ConfigError, UsageError
from subluminal.fleet.collector.credentials import Credentials, TokenReader
from subluminal.fleet.collector.questions import QUESTION_S
from subluminal.fleet.collector.quotas import Quotas
from subluminal.fleet.collector.service import Service
from subluminal.fleet.stores.base import open_store

# Requests that are under way when it is told to end: a commit and its answers.
_GRACE_S = 10.0
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
COMMIT_MS = (100, 500)


class Settings(Struct, kw_only=True):
    store: str
    host: str = "127.0.0.1"
    port: int = 0
    tokens: str | None = None
    certificate: str | None = None
    key: str | None = None
    client_ca: str | None = None
    issuer: str | None = None
    audience: str | None = None
    jwks: str | None = None
    behind_tls: bool = False
    events_per_s: float = 0.0
    tenant_events_per_s: dict[str, float] = {}
    commit_ms: int = 200
    retention_days: int = 0
    question_s: int = int(QUESTION_S)
    metrics: tuple[str, int] | None = None


def serve(settings: Settings, ready: Callable[[str, str | None], None]) -> None:
    """Until SIGTERM or SIGINT. `ready` hears the address, and that of the metrics where it is another."""
    context = _tls(settings)
    hosts = [settings.host, *([settings.metrics[0]] if settings.metrics else [])]
    if context is None and not settings.behind_tls and any(host not in _LOOPBACK for host in hosts):
        hint = "Give --tls-cert and --tls-key, or --behind-tls where something else ends TLS."
        raise UsageError("Tokens would pass over the network in clear.", hint=hint)
    credentials = Credentials(_readers(settings))
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    store = open_store(settings.store)
    store.migrate(settings.retention_days)
    quotas = Quotas(settings.events_per_s, settings.tenant_events_per_s)
    service = Service(
        store,
        credentials,
        quotas,
        commit_interval_s=settings.commit_ms / 1000,
        retention_days=settings.retention_days,
        question_s=settings.question_s,
    )
    asyncio.run(_serve(service, settings, context, ready))


async def _serve(
    service: Service, settings: Settings, context: ssl.SSLContext | None, ready: Callable[[str, str | None], None]
) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    metrics: web.AppRunner | None = None
    runner = web.AppRunner(
        service.application(with_metrics=settings.metrics is None), access_log=None, shutdown_timeout=_GRACE_S
    )
    await runner.setup()
    try:
        if settings.metrics is not None:
            metrics = web.AppRunner(service.metrics_application(), access_log=None)
            await metrics.setup()
            await web.TCPSite(metrics, *settings.metrics, ssl_context=context).start()
        await web.TCPSite(runner, settings.host, settings.port, ssl_context=context, backlog=1024).start()
        ready(_url(runner, context), None if metrics is None else _url(metrics, context))
        await ended.wait()
    finally:
        if metrics is not None:
            await metrics.cleanup()
        await runner.cleanup()


def _url(runner: web.AppRunner, context: ssl.SSLContext | None) -> str:
    host, port = runner.addresses[0][:2]
    return f"{'https' if context else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def _readers(settings: Settings) -> list[TokenReader]:
    readers: list[TokenReader] = []
    given = [name for name in (settings.issuer, settings.audience, settings.jwks) if name]
    if settings.tokens is not None:
        from subluminal.fleet.collector.tokens import Tokens

        readers.append(Tokens(settings.tokens, may_come=bool(given or settings.client_ca)))
    if given:
        if len(given) < 3:
            raise UsageError("--issuer, --audience and --jwks go together.")
        from subluminal.fleet.collector.service_accounts import ServiceAccounts

        readers.append(ServiceAccounts(*given))
    if not readers and settings.client_ca is None:
        hint = "Give --tokens, --client-ca, or --issuer with --audience and --jwks."
        raise UsageError("Nobody could send anything: no kind of credential is configured.", hint=hint)
    return readers


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if settings.certificate is None or settings.key is None:
        if settings.certificate or settings.key or settings.client_ca:
            raise UsageError("--tls-cert and --tls-key go together, and --client-ca needs both.")
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.certificate, settings.key)
        if settings.client_ca is not None:
            context.load_verify_locations(settings.client_ca)
            # Who comes with a token needs no certificate.
            context.verify_mode = ssl.CERT_OPTIONAL
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"The certificates cannot be used: {error}.") from None
    return context
