"""The state of the accounts in `channels.d`, from their files and the server; and what to do after adding one.

`commands.py` calls it. Settings enter; JSON, or sentences on stdout, leave.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from switchboard.app.channels import is_full
from switchboard.app.ownership import read_ours
from switchboard.app.settings import TOO_MANY_INSIDE, Settings
from switchboard.cli.channels.served import served_accounts
from switchboard.cli.channels.tokens import token_file
from switchboard.cli.client import Client, ask
from switchboard.cli.output import Json, NoServer, clean, errors, out, program, when
from switchboard.connectors.kernel.accounts import Declared, manifest_of, pause_file, read_account, read_declarations
from switchboard.core.channels.registry import CHANNELS
from switchboard.core.people.strangers import owner_by_code_mistake
from switchboard.domain.errors import ConfigurationError

_RUNS_ON: Final = "; until that is fixed, the account runs on as it was, or not at all"
_COUNTED: Final = ("waiting", "held", "quarantined", "standing_by")
_AWAY: Final = frozenset({"not connected", "stopped", "offline", "stale"})
_SOON: Final = timedelta(seconds=30)
"""By then a new account has reported, or does not work."""
_OF_BEAT: Final = ("since", "lag_s", "catching_up", "last_seen_at", "counters", "version")


def known_accounts(settings: Settings) -> Mapping[str, Declared]:
    """The accounts whose files can be read, by name."""
    found = {}
    for file in sorted(settings.channels_dir.glob("*.toml")):
        try:
            found[file.stem] = read_declarations(file, read_ours)
        except ConfigurationError as error:
            errors().print(clean(error.message), style="yellow", soft_wrap=True)
    return found


def standing(settings: Settings) -> Json:
    """All accounts, each with its state, the waiting work, and its connector's last report."""
    try:
        known = ask(_ask_server)
    except NoServer as error:
        errors().print(clean(error.message), style="yellow", soft_wrap=True)
        known = None
    full = is_full(settings, more=0)
    names = sorted(file.stem for file in settings.channels_dir.glob("*.toml"))
    return {"channels": [_account_standing(settings, name, known, full=full) for name in names]}


async def _ask_server(client: Client) -> Json:
    connectors = (await client.whole("/v1/connectors", "connectors"))["connectors"]
    contacts = (await client.whole("/v1/pairing", "contacts"))["contacts"]
    quarantined = (await client.whole("/v1/quarantine", "events"))["events"]
    waiting = (await client.whole("/v1/outbox", "replies", state="pending"))["replies"]
    served = served_accounts(await client.whole("/v1/tokens", "tokens"))
    return {
        "served": {name: _key_of(one) for name, one in served.items()},
        # The process that serves the account, otherwise the one last heard from, comes last.
        "connectors": {_key_of(one): one for one in sorted(connectors, key=_rank_of)},
        "standing_by": _sum_rows(
            (_key_of(one), 1) for one in connectors if one["state"] == "standby" and _is_online(one)
        ),
        "held": _sum_rows((_key_of(one), int(one["held"])) for one in contacts),
        "quarantined": _sum_rows((_key_of(one), 1) for one in quarantined),
        "waiting": _sum_rows((_key_of(one), 1) for one in waiting),
    }


def _account_standing(settings: Settings, name: str, known: Json | None, *, full: bool) -> Json:
    file = settings.channels_dir / f"{name}.toml"
    channel, account, problem = _read_configuration(settings, file, known["served"].get(name) if known else None)
    beat = known["connectors"].get(account) if known else None
    if pause_file(file).exists():
        state = "paused"
    elif problem is None and not manifest_of(channel).connects:
        state = "ready"  # its webhooks are posted to the server
    else:
        state = _state_of(beat, problem, known)
        state = "starting" if state in _AWAY and _changed_after(file, beat) else state
    last_error = beat["error_message"] if beat and state != "paused" else None
    wrong = f"{problem}{_runs_on(beat)}" if problem else None
    counted = {key: known[key][account] for key in _COUNTED} if known else dict.fromkeys(_COUNTED)
    last = {key: beat[key] for key in _OF_BEAT} if beat else dict.fromkeys(_OF_BEAT)
    error = wrong or last_error or (TOO_MANY_INSIDE if full and state in _AWAY else None)
    said = {"name": name, "channel": channel, "account": account, "state": state, "error": error}
    return {**said, **counted, **last}


def _read_configuration(settings: Settings, file: Path, served: str | None) -> tuple[str, str | None, str | None]:
    """Channel and account of a file, and what is wrong with it. `served`: the account of its token."""
    channel, account = (served or "").partition("/")[0], served
    try:
        said = read_declarations(file, read_ours)
        channel, account = said.channel, said.endpoint or account or _last_endpoint(settings, file.stem, said.channel)
        read_account(file, read_ours)
    except ConfigurationError as error:
        return channel, account, error.message
    return channel, account, None


def _runs_on(beat: Json | None) -> str:
    return _RUNS_ON if beat and _is_online(beat) and beat["state"] not in {"standby", "stopped"} else ""


def _last_endpoint(settings: Settings, name: str, channel: str) -> str | None:
    """The endpoint with which the account was last connected, for a file that names none."""
    try:
        endpoint = read_ours(token_file(settings, name)).splitlines()[1:2]
    except (OSError, ConfigurationError):
        return None
    return f"{manifest_of(channel).channel}/{endpoint[0]}" if endpoint else None


def _state_of(beat: Json | None, problem: str | None, known: Json | None) -> str:
    if problem:
        return "invalid"
    if known is None:
        return "unknown"
    if beat is None:
        return "not connected"
    return str(beat["state"] if _is_online(beat) or beat["state"] == "stopped" else beat["liveness"])


def _changed_after(file: Path, beat: Json | None) -> bool:
    """Whether the account is so new, or was changed so recently, that its connector may not have reported yet."""
    try:
        changed = datetime.fromtimestamp(file.stat().st_mtime, UTC)
    except OSError:
        return False
    reported = beat is not None and datetime.fromisoformat(beat["last_seen_at"]) >= changed
    return not reported and datetime.now(UTC) - changed < _SOON


def _is_online(beat: Json) -> bool:
    return bool(beat["liveness"] == "online")


def _rank_of(beat: Json) -> tuple[bool, str]:
    return bool(beat["serving"]) and beat["liveness"] != "offline", str(beat["last_seen_at"])


def behind(seconds: float | None) -> str:
    """How far an account is behind its platform, in words; empty if it is not."""
    return "" if seconds is None else str(timedelta(seconds=round(seconds)))


def _key_of(row: Json) -> str:
    return f"{row['channel']}/{row['endpoint']}"


def _sum_rows(rows: Iterable[tuple[str, int]]) -> Counter[str | None]:
    found: Counter[str | None] = Counter()
    for key, count in rows:
        found[key] += count
    return found


def print_next(added: Json) -> None:
    """Print what was added, and the owner's next steps."""
    console, account = out(), clean(f"{added['channel']}/{added['endpoint']}")
    who = clean(added["display_name"] or added["endpoint"])
    console.print(f"{added['name']}: added as {who} ({account})", style="green", soft_wrap=True)
    for file in added["files"]:
        console.print(f"wrote {file}", style="dim", soft_wrap=True)
    console.print()
    if to_do := added.get("to_do"):
        console.print(f"{to_do}\n", soft_wrap=True)
    if not added["connects"]:
        _print_address(added)
    elif added["strangers"] == "pair":
        _print_pairing(added, who, account)
    elif added["strangers"] == "listed":
        console.print("Nobody may write yet. Put yourself on the list:")
        console.print(f"  {program()} pairing allow {account} YOUR-ADDRESS", style="bold", soft_wrap=True)
        if added["channel"] == "email":
            _print_trust(added)
        _print_owners(added)
    else:
        console.print("Everyone may write, and is answered.")
        _print_owners(added)
    if added["channel"] == "email":
        _print_forms(added, account)
    console.print(f"See how it is: {program()} channels", style="dim")


def _has_use_for_owners(added: Json) -> bool:
    """Whether any butler has tools, as far as is known."""
    return added.get("butlers_with_tools") != []


def _print_owners(added: Json) -> None:
    """Without codes, owners are named in the team file."""
    if not _has_use_for_owners(added):
        return
    told = "Butlers use their tools only for owners. To be one, add yourself to `owners` of a butler in its team file:"
    out().print(told, soft_wrap=True)
    out().print(f'  "owners": ["{clean(added["channel"])}:YOUR-ID"]', style="bold", markup=False, soft_wrap=True)


def _print_trust(added: Json) -> None:
    """A list of senders alone admits no mail: all mail without a trusted server's confirmation is held."""
    console, endpoint = out(), json.dumps(added["endpoint"])
    console.print("Senders can be forged. Name the mail server that checks them, as the header field")
    console.print("Authentication-Results of your mails begins with it, in the settings file (switchboard.toml):")
    console.print("  [email.trusted_servers]", style="bold", markup=False)
    console.print(f'  {endpoint} = ["mx.example.org"]', style="bold", markup=False, soft_wrap=True)
    console.print("Then restart `switchboard up`. Until you do, every mail is held.")


def _print_forms(added: Json, account: str) -> None:
    """Mail from a form is automatic, whoever is named in it; a rule must say that this one has a person behind it."""
    console, sender = out(), "no-reply@YOUR-SITE"
    console.print("A form on a website, which sends as no-reply@… with the person in Reply-To, is answered by a rule:")
    if added["strangers"] == "listed":
        console.print(f"  {program()} pairing allow {account} {sender}", style="bold", soft_wrap=True)
    rule = f"--team TEAM --name form --channel email --filter email_sender={sender} --to BUTLER --reply-to-automatic"
    console.print(f'  {program()} rules create {rule} --reason "a form"', style="bold", soft_wrap=True)


def _print_address(added: Json) -> None:
    console, path = out(), f"/hooks/{added['name']}"
    console.print("Configure the sender with this URL, and JSON or a form as the content type:")
    console.print(f"  {added['hook_url'] or f'PUBLIC_URL{path}'}", style="bold", soft_wrap=True)
    if not added["hook_url"]:
        console.print("PUBLIC_URL is the public address of your server; set it as public_url in the settings.")
    console.print("Define how its events become messages, and try it with an example:")
    console.print(f"  {program()} webhooks try {added['name']} example.json", style="bold", soft_wrap=True)


def _print_pairing(added: Json, who: str, account: str) -> None:
    console, owner_of = out(), clean(added.get("owner_of") or "")
    if code := added["pairing"]:
        console.print(f"Nobody may write yet. To be approved, send this to {who}:", soft_wrap=True)
        console.print(f"  {CHANNELS[added['channel']].command_mark}start {code['code']}", style="bold")
        if owner_of:
            said = f"Send it in a private chat: who sends it will own {owner_of}, which uses its tools for them."
            console.print(said, soft_wrap=True)
        until = f"It is valid until {when(code['expires_at'])}, for one person and five tries. Another one:"
        console.print(until, soft_wrap=True)
    else:
        console.print("No switchboard is running. Start it, and create a code to get approved:")
        console.print(f"  {program()} up", style="bold")
    console.print(f"  {program()} pairing code {account}", style="bold", soft_wrap=True)
    if owner_by_code_mistake(CHANNELS[added["channel"]]):
        _print_owners(added)
    elif not (code and owner_of) and _has_use_for_owners(added):
        said = "It makes nobody an owner, and butlers use their tools only for owners. A code that does:"
        console.print(said, soft_wrap=True)
        console.print(
            f"  {program()} pairing code {account} --owner {owner_of or 'BUTLER'}", style="bold", soft_wrap=True
        )
