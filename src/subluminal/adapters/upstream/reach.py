"""How a server behind a URL is reached: its address, its headers, and a login. For every door."""

from __future__ import annotations

import os

from subluminal.host.secrets.addresses import address_of, secret_parts
from subluminal.host.secrets.headers import RemoteHeaders, resolve_headers
from subluminal.logins.tokens import find

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from subluminal.host.config import Config, ServerConfig
    from subluminal.host.secrets.confirmation import Withheld


# Far more than are in use at once: of those that were renewed, the oldest are forgotten.
MAX_SECRETS = 256


class Reach:
    """`resolved` holds what is masked as well: values of headers, tokens, and what in the URL may be a secret.

    Tokens that come later are told to whoever it is `masked_by`: the door that has a record to mask them in.
    """

    def __init__(
        self,
        config: Config,
        server: ServerConfig,
        url: str | None,
        url_env: str | None,
        header_envs: Iterable[tuple[str, str]] = (),
        bearer_env: str | None = None,
    ) -> None:
        self.withheld: Withheld | None = None
        self._mask: Callable[..., None] | None = None
        self.name = server.name
        self.url = address_of(os.environ, url, url_env)
        if server.secret_bindings:
            from subluminal.host.secrets.confirmation import withheld_at

            self.withheld = withheld_at(server, config, self.url, os.environ)
        self.resolved: RemoteHeaders = resolve_headers(
            os.environ,
            server,
            header_envs,
            bearer_env,
            config.other_bindings(server.name),
            () if self.withheld is None else self.withheld.bindings,
        )
        self.resolved.secrets += secret_parts(self.url)
        self._of_entry = len(self.resolved.secrets)
        self.login = find(server.name, self.url, self.heard)

    def heard(self, secrets: list[str]) -> None:
        """In whatever thread: tokens of a login, as it was found and as it is renewed."""
        new = [secret for secret in secrets if secret not in self.resolved.secrets]
        self.resolved.secrets += new
        del self.resolved.secrets[self._of_entry : -MAX_SECRETS]
        if self._mask is not None:
            self._mask(*secrets)

    def masked_by(self, mask: Callable[..., None]) -> None:
        """Whoever masks what is recorded: told everything that is known by now, and what comes."""
        self._mask = mask
        mask(*(secret for secret in self.resolved.secrets if isinstance(secret, str)))
