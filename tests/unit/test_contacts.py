"""Contacts that operators approve in advance: an identity that no sender can have would never match."""

from __future__ import annotations

import pytest

from switchboard.core.channels.registry import CHANNELS
from switchboard.core.people.strangers import Contact, Scope, require_possible
from switchboard.domain.errors import InvalidInput


@pytest.mark.parametrize(
    ("identity", "right"),
    [
        ("Noor@Example.ORG", "; write 'noor@example.org'"),
        ("<noor@example.org>", ", such as ann@example.org"),
        ("Noor", ""),
    ],
)
def test_a_mail_address_that_no_sender_has_is_refused(identity: str, right: str) -> None:
    with pytest.raises(InvalidInput, match="nobody has the identity") as refused:
        require_possible(Contact("email", "me@example.org", "person", identity), CHANNELS["email"])
    assert right in refused.value.message
    assert refused.value.field == "identity"


@pytest.mark.parametrize(
    ("channel", "scope", "identity"),
    [("email", "person", "noor@example.org"), ("email", "group", "Noor"), ("telegram", "person", "Noor")],
)
def test_all_others_are_taken_as_they_are(channel: str, scope: Scope, identity: str) -> None:
    require_possible(Contact(channel, "x", scope, identity), CHANNELS[channel])
