"""The wizard `switchboard modules login imap`: it checks a mailbox at its server, then keeps the account.

The manifest names it. In: a context with a `LoginDesk`; out: the account in the settings. Nothing is written before the
server has let us in. Next: `modules/accounts/questions.py`, `surveying.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from switchboard.core.mail.providers import usual_servers
from switchboard.domain.json_values import JsonObject
from switchboard.modules.accounts.questions import ask_account_name, ask_owner, check_addresses, check_given
from switchboard.modules.email.settings import ImapPlace
from switchboard.modules.email.surveying import MailboxSurvey, survey_mailbox
from switchboard.ports.login_desk import LOGIN_DESK, LoginDesk
from switchboard.ports.module import ModuleContext
from switchboard.transport.mail_servers.mailbox import SignIn
from switchboard.transport.mail_servers.server import Tls

_MODULE: Final = "email"
_QUESTIONS: Final = frozenset(
    ("address", "host", "port", "tls", "user", "whose", "name", "writes_as", "trusted_servers")
)
"""What can be answered beforehand, by options of the command."""
_STARTTLS: Final = "143"
_TLS: Final[Mapping[str, Tls]] = {"tls": "tls", "starttls": "starttls", "none": "none"}


async def log_in_imap(context: ModuleContext) -> None:
    """Connect a mailbox. Raises InvalidInput, Conflict, ConfigurationError."""
    desk: LoginDesk = context.needs[LOGIN_DESK]
    desk.require_known_answers(_QUESTIONS)
    address = desk.answer_to("address", "The address of the mailbox, such as ann@example.org", None, _check_address)
    place = _ask_place(desk, address)
    user = desk.answer_to("user", "The user, with most providers the address", address, check_given)
    owner = ask_owner(desk)  # before the server hears of it
    if desk.asks:
        desk.say("Most providers want a password that is made for programs, not the one with which you log in.")
    password = desk.password()
    survey = await survey_mailbox(place, SignIn(user, password.value))
    desk.say(f"Logged in. Will be searched: {', '.join(survey.searched)}; {survey.mails} mails.")
    name = ask_account_name(desk, _MODULE, owner)
    table: JsonObject = {"imap": _place_table(place), "user": user, **owner.table}
    table |= _ask_addresses(desk, address, user) | _ask_trusted(desk, survey)
    desk.keep_account(_MODULE, name, table, password)
    desk.say(
        f"Mails from {address} are sent once an account of a channel has that address, such as by: switchboard "
        f"channels add email {name} --set address={address} --set receive=false"
    )


def _ask_place(desk: LoginDesk, address: str) -> ImapPlace:
    """Where the provider of the address has its server, if that is known here."""
    usual: Any = usual_servers({"address": address}).get("imap", {})
    known: Mapping[str, Any] = usual if isinstance(usual, Mapping) else {}
    asked = "The IMAP server, as the help pages of your provider name it"
    host = desk.answer_to("host", asked, known.get("host"), check_given)
    port = desk.answer_to("port", "Its port", str(known.get("port", 993)), _check_port)
    usual_tls = "starttls" if port == _STARTTLS else "tls"
    tls = desk.answer_to("tls", "How it is encrypted: tls or starttls", usual_tls, partial(_check_tls, host))
    return ImapPlace(host, int(port), _TLS[tls])


def _place_table(place: ImapPlace) -> JsonObject:
    return {"host": place.host, "port": place.port, "tls": place.tls}


def _ask_addresses(desk: LoginDesk, address: str, user: str) -> JsonObject:
    """Those besides the user, which counts as one if it is an address."""
    question = "The addresses from which they write, such as ann@example.org,ann@work.example"
    typed = desk.answer_to("writes_as", question, address, check_addresses)
    others = [one for one in typed.split(",") if one and one != user.lower()]
    return {"writes_as": others} if others else {}


def _ask_trusted(desk: LoginDesk, survey: MailboxSurvey) -> JsonObject:
    """By default, the name by which the server has marked all of the newest mails."""
    question = "The name by which the server marks mails whose senders it has checked; empty: none"
    typed = desk.answer_to("trusted_servers", question, survey.marked_by, str.strip)
    names = [one.strip().lower() for one in typed.split(",") if one.strip()]
    return {"trusted_servers": names} if names else {}


# What answers are right -----------------------------------------------------------------------------------------------


def _check_address(typed: str) -> str:
    try:
        found = check_addresses(typed)
    except ValueError:
        found = ""
    if not found or "," in found:
        raise ValueError("write one address, such as ann@example.org")
    return found


def _check_port(typed: str) -> str:
    if not typed.isascii() or not typed.isdecimal() or not 1 <= int(typed) <= 65535:
        raise ValueError("a port is a number, as a rule 993")
    return typed


def _check_tls(host: str, typed: str) -> str:
    if typed not in _TLS:
        raise ValueError("it is tls or starttls; none only to this machine")
    ImapPlace(host, tls=_TLS[typed]).check()
    return typed
