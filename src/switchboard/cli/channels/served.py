"""Which account serves which endpoint, from the server's list of tokens. Called by commands; it loads no settings."""

from __future__ import annotations

from collections.abc import Mapping

from switchboard.app.accounts.names import PREFIX
from switchboard.cli.output import Json


def served_accounts(listed: Json) -> dict[str, Json]:
    """Channel and endpoint of each account with a token, from the list of all tokens."""
    return {
        str(token["name"]).removeprefix(PREFIX): {"channel": token["channel"], "endpoint": token["endpoint"]}
        for token in listed["tokens"]
        if token["role"] == "connector" and not token["revoked_at"] and str(token["name"]).startswith(PREFIX)
    }


def served_endpoints(listed: Json) -> Mapping[str, str]:
    """The same as `telegram/bot:123456`."""
    return {name: f"{one['channel']}/{one['endpoint']}" for name, one in served_accounts(listed).items()}
