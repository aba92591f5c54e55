"""The questions of a wizard that logs in an account, at this terminal or answered by options.

`modules.py` makes a `LoginTerminal` for `switchboard modules login`, `channels/signing_in.py` for accounts of channels.
In: options; out: answers that are right. Next: `app/login_desk.py`, which hands it to the wizard.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import typer

from switchboard.cli.consent_terminal import ConsentTerminal
from switchboard.cli.given_secrets import secret_in_file, secret_in_variable
from switchboard.cli.output import clean, out, wants_json
from switchboard.core.text.words import offer
from switchboard.domain.errors import InvalidInput
from switchboard.ports.login_desk import TypedPassword


def read_answers(given: Sequence[str]) -> Mapping[str, str]:
    """The answers that are given as `NAME=VALUE`. Raises BadParameter."""
    answers = {}
    for one in given:
        name, is_set, value = one.partition("=")
        if not (is_set and name):
            raise typer.BadParameter(f"{one!r}: write NAME=VALUE, such as user=ann", param_hint="--set")
        answers[name.strip()] = value.strip()
    return answers


class LoginTerminal:
    """`asking`: somebody is at the terminal. `said`: what they were told, for `--json`."""

    def __init__(
        self, answers: Mapping[str, str], password_file: str | None, password_env: str | None, *, asking: bool
    ) -> None:
        self.said: list[str] = []
        self._answers = dict(answers)
        self._file = password_file
        self._env = password_env
        self._asking = asking
        self._consent = ConsentTerminal()

    @property
    def asks(self) -> bool:
        """Whether somebody is there to ask."""
        return self._asking

    def say(self, text: str) -> None:
        """Print it, without control characters: servers have named some of it."""
        lines = [clean(line) for line in text.split("\n")]
        self.said += lines
        if not wants_json():
            out().print("\n".join(lines), soft_wrap=True)

    def answer_to(self, name: str, question: str, default: str | None, check: Callable[[str], str]) -> str:
        """As in `LoginDesk`."""
        if name in self._answers:
            return _check_option(name, self._answers[name], check)
        if self._asking:
            return _ask_at_terminal(question, default, check)
        if default is None:
            raise InvalidInput(f"give the answer to `{name}` with --set {name}=…: {question}")
        return _check_option(name, default, check)

    def given_answer(self, name: str) -> str:
        """As in `LoginDesk`."""
        return self._answers.get(name, "")

    def require_known_answers(self, names: Collection[str]) -> None:
        """As in `LoginDesk`."""
        for name in self._answers.keys() - set(names):
            raise InvalidInput(f"--set {name}=…: there is no such question{offer(name, names)}")

    def open_page(self, address: str) -> None:
        """As in `LoginDesk`."""
        self._consent.open_page(address)

    async def pasted_line(self) -> str:
        """As in `LoginDesk`."""
        return await self._consent.pasted_line()

    def password(self, question: str, *, optional: bool = False) -> TypedPassword:
        """As in `LoginDesk`."""
        if self._env is not None:
            return TypedPassword(secret_in_variable(self._env, "--password-env"), self._env)
        if self._file is not None:
            return TypedPassword(secret_in_file(self._file, "--password-file"))
        if not self._asking and optional:
            return TypedPassword("")
        if not self._asking:
            raise InvalidInput("give the password with --password-env NAME, or in a file with --password-file FILE")
        shown, default = f"{question}; it is not shown while you type", "" if optional else None
        typed: str = typer.prompt(shown, default=default, show_default=False, hide_input=True, err=True)
        return TypedPassword(typed.strip())


def _check_option(name: str, value: str, check: Callable[[str], str]) -> str:
    try:
        return check(value)
    except ValueError as error:
        raise InvalidInput(f"{name}: {error}") from error


def _ask_at_terminal(question: str, default: str | None, check: Callable[[str], str]) -> str:
    """Ask until the answer is right; Enter alone is the default."""

    def checked(typed: str) -> str:
        try:
            return check(typed.strip())
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error

    answer: str = typer.prompt(
        clean(question), default=default, show_default=bool(default), value_proc=checked, err=True
    )
    return answer
