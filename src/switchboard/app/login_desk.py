"""Where wizards of modules keep the accounts that they have checked: the settings, and the people of the installation.

`module_trials.py` makes one for a wizard, with the questions of the command line. Next: `account_tables.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from switchboard.app.account_tables import NewAccount, add_account, describe_variables, has_settings_file
from switchboard.app.settings import Settings
from switchboard.core.people.known import KnownPeople
from switchboard.domain.errors import Conflict
from switchboard.domain.json_values import JsonMapping
from switchboard.modules.kernel.manifests import Unusable, find_manifest
from switchboard.ports.login_desk import TypedPassword

_RESTART = "Workers know it when they are started again: restart `switchboard up`, or each `switchboard work`."


class Questions(Protocol):
    """The part of a `LoginDesk` that is a terminal."""

    @property
    def asks(self) -> bool: ...

    def say(self, text: str) -> None: ...

    def answer_to(self, name: str, question: str, default: str | None, check: Callable[[str], str]) -> str: ...

    def given_answer(self, name: str) -> str: ...

    def require_known_answers(self, names: Collection[str]) -> None: ...

    def password(self, question: str, *, optional: bool = False) -> TypedPassword: ...

    def open_page(self, address: str) -> None: ...

    async def pasted_line(self) -> str: ...


class SettingsDesk:
    """`LoginDesk` over the settings here and the people in the database."""

    def __init__(self, questions: Questions, settings: Settings, people: KnownPeople) -> None:
        self._questions = questions
        self._settings = settings
        self._people = people
        self._kept: set[tuple[str, str]] = set()

    @property
    def asks(self) -> bool:
        return self._questions.asks

    def say(self, text: str) -> None:
        self._questions.say(text)

    def answer_to(self, name: str, question: str, default: str | None, check: Callable[[str], str]) -> str:
        return self._questions.answer_to(name, question, default, check)

    def given_answer(self, name: str) -> str:
        return self._questions.given_answer(name)

    def require_known_answers(self, names: Collection[str]) -> None:
        self._questions.require_known_answers(names)

    def password(self, question: str = "The password", *, optional: bool = False) -> TypedPassword:
        return self._questions.password(question, optional=optional)

    def open_page(self, address: str) -> None:
        self._questions.open_page(address)

    async def pasted_line(self) -> str:
        return await self._questions.pasted_line()

    def knows(self, whose: str) -> bool:
        kind, _, name = whose.partition(":")
        return name in (self._people.persons if kind == "person" else self._people.groups)

    def has_module(self, module: str) -> bool:
        return not isinstance(find_manifest(module), Unusable)

    def has_account(self, module: str, name: str) -> bool:
        accounts = self._settings.modules.get(module, {}).get("accounts", {})
        return (isinstance(accounts, dict) and name in accounts) or (module, name) in self._kept

    def keep_account(self, module: str, name: str, table: JsonMapping, password: TypedPassword | None) -> None:
        if self.has_account(module, name):
            raise Conflict(f"[modules.{module}.accounts.{name}] is in the settings already: give this another `name`")
        account = NewAccount(module, name, table)
        if not has_settings_file():
            self.say(describe_variables(account, self._settings.modules.get(module, {}), password))
            self._kept.add((module, name))
            return
        written = add_account(account, password)
        self._kept.add((module, name))
        self.say(f"[modules.{module}.accounts.{name}] is added; written: {', '.join(map(str, written))}")
        self.say(_RESTART)
