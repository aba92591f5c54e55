"""Questions that the wizards of all accounts ask: whose an account is, what it is called, which addresses it has.

`wizard.py` and `modules/email/wizard.py` ask them. In: a `LoginDesk`; out: answers that are right. Next:
`ports/login_desk.py`.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Final

from msgspec import Struct

from switchboard.domain.json_values import JsonObject
from switchboard.ports.login_desk import LoginDesk

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_ADDRESS: Final = re.compile(r"[^\s@,<>]+@[^\s@,<>]+")
_VIEWER: Final = re.compile(r"(?:person|group):[^\s:,]+")


class AccountOwner(Struct, frozen=True):
    """Whose an account is: `person:ann` or `group:family`."""

    whose: str

    @property
    def table(self) -> JsonObject:
        """As in the settings."""
        kind, _, name = self.whose.partition(":")
        return {kind: name}


def ask_owner(desk: LoginDesk) -> AccountOwner:
    """A person or a group that there is."""
    question = "Whose it is: person:ID, as in `switchboard people list`, or group:NAME of people"
    return AccountOwner(desk.answer_to("whose", question, None, partial(check_known_viewer, desk)))


def ask_account_name(desk: LoginDesk, module: str, owned: AccountOwner) -> str:
    """A name that no account of the module has; usually that of the person or the group."""

    usual = owned.whose.partition(":")[2]
    question = "A name for the account, which people see"
    return desk.answer_to("name", question, usual, partial(check_account_name, desk, module))


# What answers are right -----------------------------------------------------------------------------------------------


def check_given(typed: str) -> str:
    """Raises ValueError for nothing."""
    if not typed:
        raise ValueError("it is empty")
    return typed


def check_account_name(desk: LoginDesk, module: str, typed: str) -> str:
    """Raises ValueError for what is no name, or that of another account of the module."""
    if desk.has_account(module, _check_name(typed)):
        raise ValueError(f"[modules.{module}.accounts.{typed}] is in the settings already: give this another name")
    return typed


def _check_name(typed: str) -> str:
    if not _NAME.fullmatch(typed):
        raise ValueError("a name has small letters, digits and hyphens, up to 40")
    return typed


def check_known_viewer(desk: LoginDesk, typed: str) -> str:
    """Raises ValueError for what is no person or group here."""
    if not _VIEWER.fullmatch(typed):
        raise ValueError("write person:ID, such as person:ann, or group:NAME, such as group:family")
    if not desk.knows(typed):
        kind, _, name = typed.partition(":")
        add = f"switchboard people add {name}" if kind == "person" else f"switchboard people group PERSON {name}"
        raise ValueError(f"there is no {kind} {name!r}: see `switchboard people list`, or add it first: `{add}`")
    return typed


def check_addresses(typed: str) -> str:
    """E-mail addresses divided by commas, each once. Raises ValueError."""
    found = [one.strip().lower() for one in typed.split(",") if one.strip()]
    if wrong := [one for one in found if not _ADDRESS.fullmatch(one)]:
        raise ValueError(f"{wrong[0]!r} is no e-mail address; several are divided by commas")
    return ",".join(dict.fromkeys(found))
