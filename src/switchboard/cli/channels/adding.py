"""Settings and secrets of a new account, from options or asked for at the terminal.

`connecting.py` calls it. In: typed values; out: what `app/accounts` takes. Next: `app/accounts/questions.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import typer
from pydantic import BaseModel

from switchboard.app.accounts.files import KeptSecret
from switchboard.app.accounts.questions import AccountQuestion, check_settings, open_questions, put_given, put_value
from switchboard.cli.given_secrets import secret_in_file, secret_in_variable
from switchboard.cli.missing import MissingOption
from switchboard.cli.output import errors, prompt_for
from switchboard.domain.errors import InvalidInput
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import Manifest, Secret


@contextmanager
def errors_of(option: str) -> Iterator[None]:
    """What is wrong inside is wrong with this option. Raises BadParameter."""
    try:
        yield
    except InvalidInput as error:
        raise typer.BadParameter(error.message, param_hint=option) from error


def settings_of(manifest: Manifest, given: Sequence[str], *, ask: bool) -> BaseModel:
    """The settings given as `NAME=VALUE`; missing ones are derived or asked for. Raises BadParameter."""
    values: JsonObject = {}
    with errors_of("--set"):
        for one in given:
            put_given(values, one)
    for question in open_questions(manifest, values) if ask else ():
        if (answer := _ask_setting(question)) != "" or question.required:
            put_value(values, question.path, answer)
    with errors_of("--set"):
        return check_settings(manifest, values)


def secrets_of(
    manifest: Manifest, files: Sequence[str], variables: Sequence[str], *, ask: bool
) -> Mapping[str, KeptSecret]:
    """The secrets by name; missing ones are asked for without echo. Raises BadParameter."""
    found = {name: KeptSecret(secret_in_file(path)) for name, path in _name_secrets(manifest, files, "--secret-file")}
    found |= {
        name: KeptSecret(secret_in_variable(env), env)
        for name, env in _name_secrets(manifest, variables, "--secret-env")
    }
    for secret in manifest.secrets:
        if secret.name not in found and (value := _ask_secret(secret) if ask else ""):
            found[secret.name] = KeptSecret(value)
        if secret.name not in found and not secret.optional:
            raise MissingOption(
                f"write {secret.name}=FILE, or {secret.name}=- for stdin: {secret.what}", param_hint="--secret-file"
            )
    return found


def _ask_setting(question: AccountQuestion) -> object:
    """Ask until the typed value is valid; Enter alone leaves out what is not required."""
    hint = question.hint if question.required else f"{question.setting.description}; Enter: as usual"

    def checked(typed: str) -> object:
        try:
            return question.read_answer(typed)
        except InvalidInput as error:
            raise typer.BadParameter(error.message) from error

    value: object = typer.prompt(
        prompt_for(question.name, hint),
        default=None if question.required else "",
        show_default=False,
        value_proc=checked,
        err=True,
    )
    return value


def _name_secrets(manifest: Manifest, given: Sequence[str], option: str) -> Iterator[tuple[str, str]]:
    """Name and place of each secret; the name may be omitted if the channel has, or needs, only one."""
    known = [secret.name for secret in manifest.secrets]
    needed = [secret.name for secret in manifest.secrets if not secret.optional or len(known) == 1]
    for one in given:
        name, is_named, place = one.partition("=")
        if is_named and name in known:
            yield name, place
        elif len(needed) == 1:
            yield needed[0], one
        else:
            raise typer.BadParameter(
                f"{one!r} names no secret: write NAME=…; there are: {', '.join(known) or 'none'}", param_hint=option
            )


def _ask_secret(secret: Secret) -> str:
    errors().print(f"{secret.name}: {secret.what}; it is not shown while you type", soft_wrap=True)
    default = "" if secret.optional else None
    typed: str = typer.prompt(secret.name, default=default, show_default=False, hide_input=True, err=True)
    return typed.strip()
