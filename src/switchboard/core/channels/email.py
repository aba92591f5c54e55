"""E-mail. `payload.raw` has the headers as `core/mail/envelope.py` keeps them, or as the Gmail API returns them.

Strangers wrote them: the sender is what the connector says, never a header.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Final, get_args

from msgspec.structs import replace

from switchboard.core.mail.auth import MailAuth, mail_auth
from switchboard.core.mail.compared import compared_words
from switchboard.core.mail.headers import (
    address,
    domain_of,
    header,
    headers,
    is_mailbox,
    list_id,
    mailboxes,
    without_tag,
)
from switchboard.core.mail.reply import HOPS, hops
from switchboard.domain.envelope import Envelope
from switchboard.ports.channel import SEVERAL, YES_OR_NO, Channel, Correspondence, Form, Found
from switchboard.ports.raw import matching, word

NAME: Final = "email"
MAX_HOPS: Final = 5
"""How many answers by switchboards may follow each other."""
Servers = Mapping[str, Collection[str]]
"""By account, or `*` for all: the names (`authserv-id`) of servers that mark mails with the results of their checks."""

_MESSAGE_ID = re.compile(r"<?[^<>\s]{1,512}>?")
_IDS = re.compile(r"<[^<>\s]{1,510}>")
_MAX_REFERENCES: Final = 20
_MAX_LINES: Final = 10
_MAX_PEOPLE: Final = 100
_MAX_PARENTS: Final = 8
_MAX_TAGS: Final = 8
_MAX_SUBJECT: Final = 12_000
_ADDRESS: Final = Form(re.compile(r"[^A-Z\s<>]+@[^A-Z\s<>@*]+"), "an address in lower case, such as ann@example.org")
_DOMAIN: Final = Form(
    re.compile(r"[^A-Z\s<>@*.][^A-Z\s<>@*]*"),
    "a domain in lower case; those below it are others",
    lambda value: value.lower().rpartition("@")[2].lstrip("*."),
)
_TAG: Final = Form(
    re.compile(r"[^A-Z\s<>@*]+"),
    "what follows the + in an address of this mailbox, in lower case",
    lambda value: value.lower().partition("@")[0].rpartition("+")[2],
    several=True,
)
_LIST_ID: Final = Form(
    re.compile(r"[^A-Z\s<>]+"),
    "the id of a list without brackets, in lower case",
    lambda value: value.lower().strip("<> "),
)
_TO_MANY: Final = ("list-id", "list-unsubscribe", "list-post", "list-help")
_BY_MACHINE: Final = ("x-autoreply", "x-autorespond")  # x-auto-response-suppress is in ordinary mail of Exchange, too
_BULK: Final = frozenset({"bulk", "junk", "list", "auto_reply"})
_NOBODY = re.compile(
    r"(mailer-daemon|postmaster|no-?reply|do-?not-?reply|bounces?|owner-.*|.*-(request|bounces?|owner))([+=].*)?@"
)


def _event_id(envelope: Envelope) -> str | None:
    own = header(envelope.payload.raw, "message-id").strip().replace("\x00", "")
    found = matching(_MESSAGE_ID, own) or matching(_MESSAGE_ID, envelope.event.external_event_id)
    return found.strip("<>") if found else None  # connectors disagree on whether the brackets belong to the id


def _content(envelope: Envelope) -> str | None:
    """The sender and the words, so that a stranger who can predict a Message-ID cannot swallow the mail.

    An id that is not a Message-ID comes from the provider, so no stranger chooses it.
    """
    raw, event = envelope.payload.raw, envelope.event.external_event_id
    if not header(raw, "message-id") and "@" not in event and not event.startswith("<"):
        return None
    words = compared_words(envelope.payload, header(raw, "subject")[:_MAX_SUBJECT])
    return f"{_bare(envelope.sender.identity)} {words}"


def _chat(envelope: Envelope) -> str:
    """The first mail that it refers to; if there is none, the mail itself."""
    return next(iter((*_references(envelope), *_answered(envelope), _own(envelope))))


def _correspondence(envelope: Envelope) -> Correspondence:
    """Anybody can refer to any mail, so only those who wrote or were addressed in a thread belong to it."""
    named = envelope.event.external_thread_id
    older = reversed(_references(envelope)[-_MAX_REFERENCES:])
    said = (named, _bracketed(named)) if named else (_chat(envelope),)
    others = (_bare(identity) for identity in envelope.sender.participants or ())
    author, own = without_tag(_bare(envelope.sender.identity)), _mailbox(envelope.source.endpoint_identity)
    known = dict.fromkeys(without_tag(one) for one in (*_addresses(envelope, "to", "cc", "reply-to"), *others))
    threads = dict.fromkeys((*said, *_answered(envelope), *older))
    return Correspondence(
        author,
        tuple(one for one in known if one not in {author, own}),
        (*(thread for thread in threads if thread != _own(envelope) or thread == said[0]), _own(envelope)),
    )


def _references(envelope: Envelope) -> list[str]:
    return _IDS.findall(header(envelope.payload.raw, "references"))


def _answered(envelope: Envelope) -> list[str]:
    return _IDS.findall(header(envelope.payload.raw, "in-reply-to"))[:1]


def _own(envelope: Envelope) -> str:
    return _bracketed(_event_id(envelope) or envelope.event.external_event_id)


def _bracketed(message_id: str) -> str:
    """The form in which mails refer to another; an id that is not a Message-ID stays as it is."""
    return f"<{message_id.strip('<>')}>" if "@" in message_id else message_id


def _replied_to(envelope: Envelope) -> str | None:
    values = headers(envelope.payload.raw, "in-reply-to")
    return next((one.strip("<>") for value in values if (one := matching(_MESSAGE_ID, value.strip()))), None)


def _facts(envelope: Envelope, servers: Servers = MappingProxyType({}), most_hops: int = MAX_HOPS) -> Found:
    raw, identity = envelope.payload.raw, envelope.sender.identity
    sender = _ADDRESS.fitting(address(identity))
    domain = _DOMAIN.fitting(domain_of(sender or ""))
    trusted = {*servers.get("*", ()), *servers.get(envelope.source.endpoint_identity, ())}
    return {
        "email_sender": sender,
        "email_domain": domain,
        "email_parent_domain": _parents(domain),
        "email_to": (recipients := _recipients(envelope)),
        "email_tag": _tags(envelope, recipients),
        "email_automatic": "no" if _automatic(envelope, most_hops) is None else "yes",
        "email_list_id": _LIST_ID.fitting(word(list_id(header(raw, "list-id")))),
        # If our own server wrote one of these headers, it is the topmost; strangers may have written the others.
        "email_auth": mail_auth(header(raw, "authentication-results"), trusted, domain or ""),
    }


def _implied(facts: Mapping[str, str]) -> Found:
    sender = facts.get("email_sender") or address(facts.get("sender", ""))
    domain = domain_of(sender or "")
    return {
        "email_sender": sender,
        "email_domain": domain,
        "email_parent_domain": _parents(facts.get("email_domain") or domain),
    }


def _parents(domain: str | None) -> str | None:
    """A domain and all above it but the topmost: `mail.acme.example`, `acme.example`.

    For a deep domain only the shortest ones: its owner can prepend any number of labels.
    """
    if not domain:
        return None
    labels = domain.split(".")
    above = [".".join(labels[at:]) for at in range(1, len(labels) - 1)]
    return SEVERAL.join((domain, *above[-_MAX_PARENTS:]))


def _tags(envelope: Envelope, recipients: str | None) -> str | None:
    """`shop` for a mail to `me+shop@example.org`, if this is the mailbox `me@example.org`; at most eight."""
    if recipients is None or "+" not in recipients:
        return None
    own = _mailbox(envelope.source.endpoint_identity)
    tags = (one.partition("@")[0].partition("+")[2] for one in recipients.split(SEVERAL) if without_tag(one) == own)
    return SEVERAL.join(islice(dict.fromkeys(tag for tag in tags if tag), _MAX_TAGS)) or None


def _recipients(envelope: Envelope) -> str | None:
    """All recipients, with this mailbox (also as `me+shop@…`) first."""
    own = _mailbox(envelope.source.endpoint_identity)
    found = (_ADDRESS.fitting(word(one)) for one in _addresses(envelope, "to", "cc", "delivered-to", "x-original-to"))
    known = dict.fromkeys(one for one in found if one is not None)
    return SEVERAL.join(sorted(known, key=lambda one: without_tag(one) != own)) or None


def _addresses(envelope: Envelope, *names: str) -> Iterator[str]:
    """The addresses in these header fields, at most a hundred."""
    lines = (line for name in names for line in headers(envelope.payload.raw, name)[:_MAX_LINES])
    return islice((one for line in lines for part in mailboxes(line) if (one := address(part))), _MAX_PEOPLE)


def _authentic(facts: Mapping[str, str]) -> bool:
    return facts.get("email_auth") == "pass"


def _overheard(facts: Mapping[str, str]) -> bool:
    """Anybody in To or Cc reads along; if no header was kept, anybody may have been addressed."""
    own, sender = _mailbox(facts.get("endpoint", "")), without_tag(facts.get("email_sender", ""))
    recipients = facts.get("email_to", "").split(SEVERAL)
    return not all(is_mailbox(one, own) or without_tag(one) == sender for one in recipients)


def _mailbox(endpoint: str) -> str:
    """`me@example.org` for `gmail:me@example.org`."""
    return _bare(endpoint.rpartition(":")[2])


def _bare(identity: str) -> str:
    return address(identity) or identity.strip("<> ").lower()


def _looped(envelope: Envelope, most: int = MAX_HOPS) -> str | None:
    """The number of switchboards that have answered each other; 0 after a person, whose program drops the count."""
    count = hops(header(envelope.payload.raw, HOPS).strip())
    return f"{HOPS}: {count}" if count >= most else None


def _automatic(envelope: Envelope, most: int = MAX_HOPS) -> str | None:
    """By RFC 3834, by signs of mailing lists and bounces, and by the sender being the mailbox that received it."""
    identity, own = envelope.sender.identity, _mailbox(envelope.source.endpoint_identity)
    sender = _bare(identity)
    if _NOBODY.match(sender):
        return f"from {identity}"
    if is_mailbox(sender, own):
        return f"from {identity}, which is this mailbox"
    return _looped(envelope, most) or _sign_of_headers(envelope.payload.raw)


def _sign_of_headers(raw: object) -> str | None:
    if told := next((name for name in (*_TO_MANY, *_BY_MACHINE) if header(raw, name)), None):
        return told
    if header(raw, "content-type").lower().startswith("multipart/report"):
        return "content-type: multipart/report"
    submitted = header(raw, "auto-submitted").partition(";")[0].strip().lower()
    if submitted not in {"", "no"}:
        return f"auto-submitted: {submitted}"
    precedence = header(raw, "precedence").strip().lower()
    if precedence in _BULK:
        return f"precedence: {precedence}"
    return "return-path: <>" if header(raw, "return-path").strip() == "<>" else None


CHANNELS: Final = (
    Channel(
        name=NAME,
        providers=frozenset({"gmail", "imap", "smtp", "file"}),
        event_id=_event_id,
        content=_content,
        chat=_chat,
        correspondence=_correspondence,
        replied_to=_replied_to,
        facts=_facts,
        keys={
            "email_automatic": YES_OR_NO,
            "email_sender": _ADDRESS,
            "email_to": replace(_ADDRESS, several=True),
            "email_tag": _TAG,
            "email_domain": _DOMAIN,
            "email_parent_domain": replace(
                _DOMAIN, what="a domain in lower case, for itself and all below it", several=True
            ),
            "email_list_id": _LIST_ID,
            "email_auth": frozenset(get_args(MailAuth)),
        },
        unknown={
            "email_auth": "no mail server is trusted to authenticate senders; name yours under [email.trusted_servers]"
        },
        implies={
            "email_sender": ("email_domain", "email_parent_domain"),
            "email_domain": ("email_parent_domain",),
        },
        implied=_implied,
        automatic=_automatic,
        looped=_looped,
        authentic=_authentic,
        overheard=_overheard,
        history="email",
        personal=True,
    ),
)


def trusting(servers: Servers, max_hops: int = MAX_HOPS) -> Channel:
    """The channel with these trusted mail servers, and this maximum of consecutive switchboard answers."""
    named = {account: frozenset(map(str.lower, those)) for account, those in servers.items() if those}
    return replace(
        CHANNELS[0],
        facts=partial(_facts, servers=named, most_hops=max_hops),
        unknown={} if named else CHANNELS[0].unknown,
        automatic=partial(_automatic, most=max_hops),
        looped=partial(_looped, most=max_hops),
    )
