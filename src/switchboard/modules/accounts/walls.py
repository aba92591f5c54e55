"""Who may see how much of an account: decided here alone, for every tool of calendars, contacts and mail. Pure.

Tools ask for a call with what `ports/people_seen.py` says of its person. In: a `SeenPerson` and accounts; out: what is
seen of each, and why nothing is. Next: `ports/people_seen.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from switchboard.ports.people_seen import SeenPerson

Sight = Literal["all", "busy", "nothing"]
"""`busy`: when somebody is busy, and nothing more. Contacts have no such thing: there it is nothing."""


class OwnedAccount(Protocol):
    """An account of the settings, which belongs to a person or to a group; the other of the two is empty."""

    @property
    def person(self) -> str: ...

    @property
    def group(self) -> str: ...

    @property
    def busy_for(self) -> tuple[str, ...]:
        """Who else sees when they are busy, such as `person:ann`."""
        ...


def sight_of(seen: SeenPerson, account: OwnedAccount) -> Sight:
    """How much of the account is told in answer to a call.

    Those whose account it is see all of it where nobody else reads, and let others in a group see when they are busy.
    What is shared with somebody alone is told them alone.
    """
    if seen.household:
        return "all" if account.group else "nothing"
    if not seen.person:
        return "nothing"
    if _is_theirs(seen, account):
        return "all" if seen.private else "busy"
    return "busy" if seen.private and _is_named(seen, account) else "nothing"


def accounts_seen(seen: SeenPerson, accounts: Mapping[str, OwnedAccount], *, busy: bool = False) -> Mapping[str, Sight]:
    """The accounts of which anything is told, by name, the caller's own before the others. `busy`: those, too."""
    sights = {name: sight_of(seen, account) for name, account in accounts.items()}
    wanted = [name for name, sight in sights.items() if sight == "all" or (busy and sight == "busy")]
    return {name: sights[name] for name in sorted(wanted, key=lambda name: (not accounts[name].person, name))}


def why_nothing(seen: SeenPerson, accounts: Mapping[str, OwnedAccount]) -> str:
    """Why a call sees none of these accounts, in a sentence for the caller that tells nothing of them."""
    if not accounts:
        return "No account is set up here; an operator adds one to the settings."
    if not (seen.person or seen.household):
        return (
            "You are not linked to a person here, or it is not certain who wrote; an operator can link you with "
            "`switchboard people link`."
        )
    if not seen.private:
        return "Others read this conversation; ask in a private one."
    return "No account is yours or your household's; an operator can add one to the settings."


def _is_theirs(seen: SeenPerson, account: OwnedAccount) -> bool:
    return account.person == seen.person if account.person else account.group in seen.groups


def _is_named(seen: SeenPerson, account: OwnedAccount) -> bool:
    viewers = {f"person:{seen.person}", *(f"group:{group}" for group in seen.groups)}
    return not viewers.isdisjoint(account.busy_for)
