"""`switchboard backup` and `switchboard restore`: a whole installation in one file. Called by `main.py`.

Next: `app/ops/installation/saving.py` and `restoring.py`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from shlex import quote
from typing import Annotated, Final

import typer
from msgspec.structs import asdict

from switchboard.app.logs import set_up_logs
from switchboard.app.ops.installation.archive import BackupManifest
from switchboard.app.ops.installation.inventory import take_inventory
from switchboard.app.ops.installation.passphrases import can_seal, require_sealing
from switchboard.app.ops.installation.restoring import (
    Restored,
    RestoreRequest,
    check_restore,
    opened_backup,
    restore_installation,
)
from switchboard.app.ops.installation.saving import (
    PartSize,
    Saved,
    SaveRequest,
    measure,
    require_space,
    save_installation,
)
from switchboard.app.ownership import read_ours
from switchboard.app.settings import load_settings
from switchboard.app.settings_file import read_settings_file
from switchboard.cli.missing import MissingOption
from switchboard.cli.open_work import say_open_work
from switchboard.cli.output import clean, errors, program, show, wants_json, when
from switchboard.cli.sizes import bytes_in_words, shown_progress
from switchboard.distribution import install_command
from switchboard.domain.errors import ConfigurationError

PassphraseFile = Annotated[
    Path | None, typer.Option(help="A file whose first line is the passphrase for the secrets.", dir_okay=False)
]
_MANY: Final = 20


def backup(
    file: Annotated[
        Path, typer.Argument(help="The file to write; it is replaced only when the backup is complete.", dir_okay=False)
    ],
    *,
    workspaces: Annotated[
        bool, typer.Option("--workspaces/--without-workspaces", help="Whether to save the files of butlers.")
    ] = True,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Save the whole installation, even while it works: database, settings, team files, accounts, workspaces.

    Secrets are encrypted with a passphrase; without one they are left out. Run it where `switchboard up` runs.
    """
    settings = load_settings()
    set_up_logs(settings.log_level)
    given = read_settings_file()
    inventory = take_inventory(settings, given, Path.cwd(), workspaces=workspaces)
    sizes = asyncio.run(measure(settings, inventory))
    _say_sizes(sizes)
    require_space(file, sizes)
    passphrase = _new_passphrase(passphrase_file)
    wanted = SaveRequest(file, inventory, given, Path.cwd(), passphrase, workspaces)
    with shown_progress("backing up") as progress:
        saved = asyncio.run(save_installation(settings, wanted, progress))
    _say_saved(saved)
    contents = saved.contents
    found = {
        "file": str(file),
        "size_bytes": saved.size_bytes,
        "parts": [asdict(size) for size in sizes],
        "secrets": "encrypted" if saved.sealed else "left out",
        "give_again": _lacking(saved),
        "left_out": list(contents.left_out),
        "changed": list(saved.changed),
    }
    show(found, f"{file}: {bytes_in_words(saved.size_bytes)}")


def restore(
    file: Annotated[Path, typer.Argument(help="A backup made by `switchboard backup`.", dir_okay=False)],
    directory: Annotated[Path, typer.Argument(help="An empty or new directory; by default here.")] = Path(),
    *,
    passphrase_file: PassphraseFile = None,
    without_secrets: Annotated[
        bool, typer.Option("--without-secrets", help="Leave out the secrets that are in the backup.")
    ] = False,
    paused: Annotated[
        bool, typer.Option("--paused", help="Pause all accounts, until `channels resume` connects them.")
    ] = False,
) -> None:
    """Restore a whole installation into an empty directory, whole or not at all. Everything is checked first.

    Restore only what you trust: an installation names programs that run.
    """
    set_up_logs("info")
    with ExitStack() as stack:
        with shown_progress("checking"):
            opened, manifest = stack.enter_context(opened_backup(file))
            check_restore(manifest, RestoreRequest(directory))
        # A progress line would erase the question.
        passphrase = None if without_secrets else _known_passphrase(manifest, passphrase_file)
        wanted = RestoreRequest(directory, passphrase, paused)
        progress = stack.enter_context(shown_progress("restoring"))
        restored = asyncio.run(restore_installation(opened, manifest, wanted, progress))
    _say_restored(restored)
    found = {
        "file": str(file),
        "directory": str(directory.absolute()),
        "release": manifest.contents.release,
        "made_at": manifest.contents.made_at,
        "migrated": list(restored.migrated),
        "give_again": list(restored.to_give),
        "edited": list(restored.edited),
        "left_out": list(manifest.contents.left_out),
        "paused": list(restored.paused),
        "open": asdict(restored.open_work),
    }
    into = "" if directory == Path() else f"cd {quote(str(directory))} && "
    show(found, f"restored from {file}, made {when(manifest.contents.made_at)}; start it: {into}{program()} up")


def _at_terminal() -> bool:
    return not wants_json() and sys.stdin.isatty() and sys.stderr.isatty()


def _new_passphrase(file: Path | None) -> str | None:
    """The passphrase for the secrets; None leaves them out."""
    if file is not None:
        require_sealing()
        return _read_passphrase(file)
    if not _at_terminal():
        return None
    if not can_seal():
        errors().print(
            f"secrets are left out; to encrypt them: {install_command('backup')}", style="yellow", soft_wrap=True
        )
        return None
    asked = "Passphrase for the secrets (empty: leave them out)"
    typed: str = typer.prompt(asked, default="", show_default=False, hide_input=True, err=True)
    if typed and typer.prompt("The same once more", hide_input=True, err=True) != typed:
        raise typer.BadParameter("the two passphrases differ", param_hint="passphrase")
    return typed or None


def _known_passphrase(manifest: BackupManifest, file: Path | None) -> str | None:
    if not manifest.sealed:
        return None
    require_sealing()
    if file is not None:
        return _read_passphrase(file)
    if not _at_terminal():
        raise MissingOption(
            "the backup has secrets: give their passphrase, or pass --without-secrets", param_hint="--passphrase-file"
        )
    typed: str = typer.prompt("Passphrase of the secrets", hide_input=True, err=True)
    return typed


def _read_passphrase(file: Path) -> str:
    try:
        passphrase = read_ours(file).partition("\n")[0].strip("\r")
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"the passphrase cannot be read from {file}: {error}") from error
    if not passphrase:
        raise ConfigurationError(f"{file}: its first line is empty, and should be the passphrase")
    return passphrase


def _say_sizes(sizes: Sequence[PartSize]) -> None:
    if wants_json():
        return
    for size in sizes:
        files = "" if size.kind == "database" else f" in {size.files} {'file' if size.files == 1 else 'files'}"
        more = " on the disk; less in the backup" if size.kind == "database" else ""
        errors().print(f"{size.kind}: {bytes_in_words(size.size_bytes)}{files}{more}", style="dim")


def _lacking(saved: Saved) -> list[str]:
    """What has to be given again after a restore."""
    contents = saved.contents
    secrets = () if saved.sealed else contents.secrets
    variables = (f"environment variable {name}" for name in contents.variables)
    return [*secrets, *variables, *(f"login for {name}" for name in contents.logins)]


def _say_saved(saved: Saved) -> None:
    _say("to be given again after a restore", _lacking(saved))
    _say("left out", saved.contents.left_out)
    _say("changed while it was read", saved.changed)


def _say_restored(restored: Restored) -> None:
    _say("edited, because paths have changed", restored.edited)
    _say("not in the backup", restored.manifest.contents.left_out)
    _say("give again", restored.to_give)
    _say("paused; `switchboard channels resume` connects it", restored.paused)
    say_open_work(restored.open_work, paused=bool(restored.paused))
    if not wants_json():
        told = "Stop the old installation before you start this one: both would answer."
        errors().print(told, style="yellow", soft_wrap=True)


def _say(what: str, things: Iterable[str]) -> None:
    """A line for each thing, for people."""
    if wants_json():
        return
    there = list(things)
    for thing in there[:_MANY]:
        errors().print(clean(f"{what}: {thing}"), style="yellow", soft_wrap=True)
    if len(there) > _MANY:
        errors().print(f"{what}: {len(there) - _MANY} more; --json lists them all", style="yellow")
