"""§4.1: secret bindings."""

from __future__ import annotations

import msgspec
import pytest

from subluminal.contracts.secrets import ServerSecrets

BINDING = {"inject_as": "GITHUB_TOKEN", "secret_ref": "github_token", "source": "env"}


def check(**changes):
    return msgspec.convert({"server_name": "github", "secret_bindings": [{**BINDING, **changes}]}, ServerSecrets)


def test_a_secret_is_redacted_and_required_unless_the_binding_says_otherwise():
    assert check().secret_bindings[0].redact is True
    assert check().secret_bindings[0].required is True
    assert check(redact=False, required=False).secret_bindings[0].redact is False


@pytest.mark.parametrize("source", ["env", "keychain", "file"])
def test_every_source_of_the_pack_is_known(source):
    assert check(source=source).secret_bindings[0].source == source


@pytest.mark.parametrize(
    "fault",
    [
        {"source": "vault"},
        {"inject_as": ""},
        {"inject_as": "A=B"},
        {"inject_as": "A\0B"},
        {"inject_as": "1A"},
        {"inject_as": "A\n"},
        {"secret_ref": ""},
        {"value": "hunter2"},
    ],
)
def test_a_binding_outside_the_contract_is_refused_without_quoting_it(fault):
    with pytest.raises(msgspec.ValidationError) as caught:
        check(**fault)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("field", BINDING)
def test_a_binding_needs_its_three_names(field):
    binding = {key: value for key, value in BINDING.items() if key != field}
    with pytest.raises(msgspec.ValidationError, match=field):
        msgspec.convert({"server_name": "github", "secret_bindings": [binding]}, ServerSecrets)
