"""The port by which a module's wizard speaks with the person who logs in an account, and keeps the account.

`switchboard modules login` puts a `LoginDesk` into the `needs` of the context that the wizard gets. Next: `module.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final, Protocol

from switchboard.domain.json_values import JsonMapping

LOGIN_DESK: Final = "login_desk"
"""Its name among the `needs` of a context."""


@dataclass(frozen=True, slots=True)
class TypedPassword:
    """A password, and the environment variable in which it stays; without one, a file is written for it."""

    value: str = field(repr=False)
    env: str = ""


class LoginDesk(Protocol):
    """Nothing is kept before `keep_account`. Questions are answered by options of the command, where it has them."""

    @property
    def asks(self) -> bool:
        """Whether somebody is there to ask."""
        ...

    def say(self, text: str) -> None:
        """Tell the person something."""
        ...

    def answer_to(self, name: str, question: str, default: str | None, check: Callable[[str], str]) -> str:
        """What the option `name` says, or the person; `check` returns what is meant, or raises ValueError.

        With nobody to ask, it is the default. Raises InvalidInput that names the option, if there is none.
        """
        ...

    def given_answer(self, name: str) -> str:
        """What the option `name` says; empty without it. Nobody is asked."""
        ...

    def require_known_answers(self, names: Collection[str]) -> None:
        """Called first. Raises InvalidInput if an option of the command answers none of these questions."""
        ...

    def password(self, question: str = "The password", *, optional: bool = False) -> TypedPassword:
        """A secret, which is not shown while it is typed; empty only if it is `optional`.

        Raises InvalidInput, as `answer_to`.
        """
        ...

    def open_page(self, address: str) -> None:
        """Show the address of a page at which the person consents, and open it in a browser if there is one here."""
        ...

    async def pasted_line(self) -> str:
        """The next line that the person enters, such as where that page has led; if nobody can, it does not return."""
        ...

    def knows(self, whose: str) -> bool:
        """Whether there is such a person or group of people, as `person:ann` or `group:family`."""
        ...

    def has_module(self, module: str) -> bool:
        """Whether this module is installed."""
        ...

    def has_account(self, module: str, name: str) -> bool:
        """Whether the settings have an account of this name."""
        ...

    def keep_account(self, module: str, name: str, table: JsonMapping, password: TypedPassword | None) -> None:
        """Add `[modules.MODULE.accounts.NAME]` to the settings, with the place of the password, and say so.

        None: the table says itself how the account is opened.

        Raises Conflict if there is one, ConfigurationError if the file cannot be written or would be wrong.
        """
        ...
