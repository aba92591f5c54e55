"""Which account serves which endpoint, from the server's list of tokens. Called by commands; it loads no settings."""

from __future__ import annotations

from typing import Final

from switchboard.cli.output import Json

PREFIX: Final = "connector-"
"""Before the name of the account in the name of its token."""


def served_accounts(listed: Json) -> dict[str, Json]:
    """Channel and endpoint of each account with a token, from the list of all tokens."""
    return {
        str(token["name"]).removeprefix(PREFIX): {"channel": token["channel"], "endpoint": token["endpoint"]}
        for token in listed["tokens"]
        if token["role"] == "connector" and not token["revoked_at"] and str(token["name"]).startswith(PREFIX)
    }
