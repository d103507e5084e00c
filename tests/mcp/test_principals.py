"""The principal of a request to an agent that is served: one for each user of each client."""

from __future__ import annotations

import pytest

from hookline.mcp._server.serve import _client_of

context = pytest.importorskip("mcp.server.auth.middleware.auth_context")
bearer = pytest.importorskip("mcp.server.auth.middleware.bearer_auth")
provider = pytest.importorskip("mcp.server.auth.provider")


def principal(client_id: str, subject: str | None) -> str:
    token = provider.AccessToken(token="t", client_id=client_id, scopes=[], subject=subject)
    before = context.auth_context_var.set(bearer.AuthenticatedUser(token))
    try:
        return _client_of(None)
    finally:
        context.auth_context_var.reset(before)


def test_a_client_cannot_have_the_name_of_another_clients_user() -> None:
    clients = [
        ("https://a.example/app", "bob"),
        ("https://a.example", "app/bob"),
        ("https://a.example/app/bob", None),
        ("https://a.example/app", None),
        ("https:%2F%2Fa.example%2Fapp", "bob"),
    ]
    assert len({principal(*each) for each in clients}) == len(clients)


@pytest.mark.parametrize("subject", [None, "bob"])
def test_the_name_of_a_plain_client_is_readable(subject: str | None) -> None:
    assert principal("app", subject) == ("app" if subject is None else "app/bob")


def test_without_a_token_everybody_is_the_same() -> None:
    assert _client_of(None) == ""
