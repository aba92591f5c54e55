"""The state of the accounts in `channels.d`, for which the server is asked; and what to do after adding one.

`commands.py` calls it. Settings enter; JSON, or sentences on stdout, leave. Next: `app/accounts/standing.py`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta

from msgspec import convert, to_builtins

from switchboard.app.accounts.standing import AccountFacts, facts_of_connectors, find_standings
from switchboard.app.settings import Settings
from switchboard.cli.channels.served import served_endpoints
from switchboard.cli.client import Client, ask
from switchboard.cli.output import Json, NoServer, clean, errors, out, program, when
from switchboard.core.channels.registry import CHANNELS
from switchboard.core.people.strangers import owner_by_code_mistake
from switchboard.domain.shown import Connector


def standing(settings: Settings) -> Json:
    """All accounts, each with its state, the waiting work, and its connector's last report."""
    try:
        known = ask(_ask_server)
    except NoServer as error:
        errors().print(clean(error.message), style="yellow", soft_wrap=True)
        known = None
    return {"channels": to_builtins(find_standings(settings, known))}


async def _ask_server(client: Client) -> AccountFacts:
    listed = (await client.whole("/v1/connectors", "connectors"))["connectors"]
    contacts = (await client.whole("/v1/pairing", "contacts"))["contacts"]
    quarantined = (await client.whole("/v1/quarantine", "events"))["events"]
    waiting = (await client.whole("/v1/outbox", "replies", state="pending"))["replies"]
    connectors, standing_by = facts_of_connectors(convert(listed, list[Connector]))
    return AccountFacts(
        served=served_endpoints(await client.whole("/v1/tokens", "tokens")),
        connectors=connectors,
        standing_by=Counter(standing_by),
        held=_sum_rows((_key_of(one), int(one["held"])) for one in contacts),
        quarantined=Counter(map(_key_of, quarantined)),
        waiting=Counter(map(_key_of, waiting)),
    )


def behind(seconds: float | None) -> str:
    """How far an account is behind its platform, in words; empty if it is not."""
    return "" if seconds is None else str(timedelta(seconds=round(seconds)))


def _key_of(row: Json) -> str:
    return f"{row['channel']}/{row['endpoint']}"


def _sum_rows(rows: Iterable[tuple[str, int]]) -> Counter[str]:
    found: Counter[str] = Counter()
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
