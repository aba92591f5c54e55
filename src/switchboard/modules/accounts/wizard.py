"""The wizards `switchboard modules login caldav` and `carddav`: they check an account at its server, then keep it.

The manifests of calendar and contacts name `log_in_caldav` and `log_in_carddav`. In: a context with a `LoginDesk`; out:
the account in the settings. Nothing is written before the server has let us in. Next: `questions.py`, `surveys.py`,
`presets.py`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final
from zoneinfo import ZoneInfo

from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.text.words import offer
from switchboard.domain.errors import InvalidInput
from switchboard.domain.json_values import JsonObject
from switchboard.modules.accounts.presets import PRESETS, other_place, place_at
from switchboard.modules.accounts.questions import (
    AccountOwner,
    ask_account_name,
    ask_owner,
    check_addresses,
    check_given,
    check_known_viewer,
)
from switchboard.modules.accounts.surveys import NAMES, AccountSurvey, survey_account
from switchboard.ports.checks import count_of
from switchboard.ports.login_desk import LOGIN_DESK, LoginDesk, TypedPassword
from switchboard.ports.mail_desk import MAIL_DESK, MailDesk
from switchboard.ports.module import ModuleContext
from switchboard.transport.dav.kinds import CALDAV, CARDDAV, DavError, DavKind, DavLogin
from switchboard.transport.dav.places import start_of

_MODULES: Final[Mapping[str, str]] = {CALDAV.name: "calendar", CARDDAV.name: "contacts"}
_REGION: Final = re.compile(r"[A-Z]{2}")
_YES: Final = {"yes": "yes", "y": "yes", "no": "no", "n": "no"}


class _Opened(Struct, frozen=True):
    """Where an account is, and how it is opened."""

    url: str
    user: str
    password: TypedPassword

    @property
    def login(self) -> DavLogin:
        return DavLogin(self.url, self.user, self.password.value)


class _FoundAccount(Struct, frozen=True):
    """An account that let us in, and whose it is. `senders`: the addresses from which mails can be sent here."""

    kind: DavKind
    name: str
    opened: _Opened
    owned: AccountOwner
    survey: AccountSurvey
    senders: frozenset[str]


_QUESTIONS: Final = frozenset(
    ("preset", "url", "user", "whose", "name", "addresses", "zone", "busy_for", "sends", "region", "also")
)
"""What can be answered beforehand, by options of the command."""


async def log_in_caldav(context: ModuleContext) -> None:
    """Connect the calendars of an account. Raises InvalidInput, Conflict, ConfigurationError."""
    mail_desk: MailDesk | None = context.needs.get(MAIL_DESK)
    senders = frozenset(await mail_desk.senders()) if mail_desk is not None else frozenset[str]()
    await _log_in(context.needs[LOGIN_DESK], CALDAV, senders)


async def log_in_carddav(context: ModuleContext) -> None:
    """Connect the address books of an account. Raises InvalidInput, Conflict, ConfigurationError."""
    await _log_in(context.needs[LOGIN_DESK], CARDDAV, frozenset())


async def _log_in(desk: LoginDesk, kind: DavKind, senders: frozenset[str]) -> None:
    """`senders`: the addresses from which this installation can send mails."""
    desk.require_known_answers(_QUESTIONS)
    opened = _ask_opened(desk, kind)
    survey = await survey_account(opened.login, kind)
    _say_survey(desk, kind, survey)
    owned = ask_owner(desk)
    name = ask_account_name(desk, _MODULES[kind.name], owned)
    found = _FoundAccount(kind, name, opened, owned, survey, senders)
    _keep_account(desk, found)
    await _offer_other(desk, CARDDAV if kind is CALDAV else CALDAV, found)


def _ask_opened(desk: LoginDesk, kind: DavKind) -> _Opened:
    preset = PRESETS[desk.answer_to("preset", f"The provider ({', '.join(PRESETS)})", "other", _is_preset)]
    known = preset.urls.get(kind.name)
    typed = known or desk.answer_to("url", f"URL: {preset.asks}", None, lambda given: _is_url(place_at(preset, given)))
    user = desk.answer_to("user", "The user, with many providers the mail address", None, check_given)
    if desk.asks and preset.hint:
        desk.say(preset.hint)
    return _Opened(typed, user, desk.password())


def _say_survey(desk: LoginDesk, kind: DavKind, survey: AccountSurvey) -> None:
    desk.say("Logged in. Found:")
    for one in survey.found:
        rights = "" if one.collection.writable is not False else ", can only be read"
        rights += ", somebody else's" if one.collection.shared else ""
        zone = f", time zone {one.collection.zone}" if one.collection.zone else ""
        desk.say(f"  {NAMES[kind.name][0]} {one.collection.name!r}: {count_of(one.objects, 'object')}{rights}{zone}")


def _keep_account(desk: LoginDesk, found: _FoundAccount) -> None:
    table: JsonObject = {"url": found.opened.url, "user": found.opened.user, **found.owned.table}
    table |= (
        ask_region(desk)
        if found.kind is CARDDAV
        else ask_of_calendar(desk, found.survey, found.opened.user, found.senders)
    )
    desk.keep_account(_MODULES[found.kind.name], found.name, table, found.opened.password)


def ask_region(desk: LoginDesk) -> JsonObject:
    """Of an address book."""
    question = "The country of phone numbers without its code, such as DE; Enter: none"
    region = desk.answer_to("region", question, "", _is_region)
    return {"region": region} if region else {}


def ask_of_calendar(desk: LoginDesk, survey: AccountSurvey, user: str, senders: Collection[str] = ()) -> JsonObject:
    """Of calendars: addresses, zone, who sees when they are busy, who sends invitations. Raises InvalidInput.

    `senders`: the addresses from which mails can be sent here.
    """
    addresses = _ask_addresses(desk, survey, user)
    usual = next((one.collection.zone for one in survey.found if _is_known_zone(one.collection.zone)), "")
    zone = desk.answer_to(
        "zone", "The time zone of calendars that say none, such as Europe/Berlin; empty: UTC", usual, _is_zone
    )
    viewers = desk.answer_to(
        "busy_for",
        "Who else may see when they are busy, such as person:ann,group:family; Enter: nobody",
        "",
        partial(_are_known_viewers, desk),
    )
    mailing = [one for one in (user.lower(), *addresses) if one in senders]
    return {
        **({"addresses": addresses} if addresses else {}),
        **({"zone": zone} if zone else {}),
        **({"busy_for": [*filter(None, viewers.split(","))]} if viewers else {}),
        "sends": _ask_sender(desk, survey, mailing),
    }


def _ask_addresses(desk: LoginDesk, survey: AccountSurvey, user: str) -> list[str]:
    """Those besides the user, which counts as one if it is an address."""
    usual = survey.addresses or ((user,) if "@" in user else ())
    question = "The e-mail addresses by which they are invited to meetings, such as ann@example.org,ann@work.example"
    typed = desk.answer_to("addresses", question, ",".join(usual), check_addresses)
    if not typed:
        desk.say("Without an address, no invitation counts as accepted, and nobody can be invited.")
    return [one for one in typed.split(",") if one and one != user.lower()]


def _ask_sender(desk: LoginDesk, survey: AccountSurvey, mailing: Sequence[str]) -> str:
    """Who sends invitations. `mailing`: their addresses from which we could. Raises InvalidInput for who cannot."""
    usual = "server" if survey.scheduling else "mail" if mailing else "nobody"
    sends = desk.answer_to("sends", _describe_sending(survey, mailing), usual, _is_sending)
    if sends == "server" and not survey.scheduling:
        raise InvalidInput("sends: the server does not say that it sends invitations (calendar-auto-schedule)")
    if sends == "mail" and survey.scheduling:
        raise InvalidInput("sends: the server says that it sends invitations itself; with ours there would be two")
    if sends == "mail" and not mailing:
        raise InvalidInput(
            "sends: no e-mail account of this installation has an address of theirs: "
            "add one with `switchboard channels add email`, or choose nobody"
        )
    return sends


def _describe_sending(survey: AccountSurvey, mailing: Sequence[str]) -> str:
    if survey.scheduling:
        return "The server says that it sends invitations. Who sends them: server or nobody"
    by_us = (
        f"mail (we do, as {mailing[0]}) or nobody" if mailing else "nobody, as no e-mail account here has their address"
    )
    return f"The server sends no invitations. Who sends them: {by_us}"


async def _offer_other(desk: LoginDesk, kind: DavKind, first: _FoundAccount) -> None:
    """The other kind on the same server, if it is there; that it is not, or cannot be, is no failure."""
    module, what = _MODULES[kind.name], NAMES[kind.name][0]
    if not desk.has_module(module) or desk.has_account(module, first.name):
        return
    there = replace(first.opened, url=other_place(kind.name, first.opened.url))
    try:
        survey = await survey_account(there.login, kind)
    except InvalidInput:
        return
    names = ", ".join(repr(one.collection.name) for one in survey.found)
    question = f"There are also the {what}s {names}: connect them, too? (yes or no)"
    if desk.answer_to("also", question, "yes" if desk.asks else "no", _is_yes_or_no) == "yes":
        _keep_account(desk, replace(first, kind=kind, opened=there, survey=survey))


# What answers are right -----------------------------------------------------------------------------------------------


def _is_preset(typed: str) -> str:
    if typed not in PRESETS:
        raise ValueError(f"there is no provider {typed!r}{offer(typed, PRESETS)}; `other` is any")
    return typed


def _is_url(typed: str) -> str:
    try:
        return str(start_of(typed))
    except DavError as error:
        raise ValueError(str(error)) from error


def _are_known_viewers(desk: LoginDesk, typed: str) -> str:
    return ",".join(check_known_viewer(desk, one.strip()) for one in typed.split(",") if one.strip())


def _is_region(typed: str) -> str:
    if typed and not _REGION.fullmatch(typed):
        raise ValueError("a country has two capital letters, such as DE")
    return typed


def _is_known_zone(zone: str) -> bool:
    try:
        ZoneInfo(zone)
    except (OSError, ValueError, LookupError):
        return False
    return bool(zone)


def _is_zone(typed: str) -> str:
    if typed and not _is_known_zone(typed):
        raise ValueError(f"there is no time zone {typed!r}; it is a name such as Europe/Berlin")
    return typed


def _is_sending(typed: str) -> str:
    if typed not in ("server", "mail", "nobody"):
        raise ValueError("it is server, mail or nobody")
    return typed


def _is_yes_or_no(typed: str) -> str:
    try:
        return _YES[typed.lower()]
    except KeyError:
        raise ValueError("it is yes or no") from None
