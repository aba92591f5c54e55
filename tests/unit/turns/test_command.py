"""Whose words a command is: phones and programs add signatures and histories to it, and others' words are never one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import pytest
from msgspec.structs import replace

from switchboard.core.channels.registry import CHANNELS
from switchboard.core.people.strangers import code_in
from switchboard.core.turns.asking import ChatCommand, command_in, is_command, resolve_answer
from switchboard.core.turns.command import answer_text, command_text, with_mark
from switchboard.core.turns.house import HELP, house_command
from switchboard.core.turns.memory_command import HOW
from switchboard.core.turns.stop import is_stop
from switchboard.domain.envelope import Envelope, Passage, PassageKind
from switchboard.ports.channel import Channel
from switchboard.ports.chat import chat_facts, is_called
from tests.lab import envelope
from tests.unit.turns.test_asking import asked

ID: Final = "1a2b3c4d"
COMMANDS: Final = (f"/approve {ID}", f"/refuse {ID} not on a Sunday", f"/answer {ID} the blue one", "/stop")
CODE: Final = "23456-789AB"
BELIEVED: Final = Channel(name="email")
ASKED: Final = "May I run this?\nTo decide: /approve 1a2b3c4d or /refuse 1a2b3c4d"
ON: Final = "On 12 Nov 2026, at 10:00, House <house@home.example> wrote:"


class Program(NamedTuple):
    """What a mail program puts below the words of its user; `history` is as it stands in a plain part."""

    name: str
    below: str
    history: str


def _quoted(text: str, mark: str = "> ") -> str:
    return "\n".join(f"{mark}{line}" for line in text.splitlines())


PROGRAMS: Final = (
    Program("Apple Mail on iOS", "\n\nSent from my iPhone", f"{_quoted(ON)}\n{_quoted('')}\n{_quoted(ASKED)}"),
    Program(
        "Apple Mail on iOS, German",
        "\n\nVon meinem iPhone gesendet",
        f"{_quoted('Am 12.11.2026 um 10:00 schrieb House <house@home.example>:')}\n{_quoted(ASKED)}",
    ),
    Program(
        "Outlook for iOS",
        "\n\nGet Outlook for iOS<https://aka.ms/o0ukef>",
        "________________________________\nFrom: House <house@home.example>\n"
        f"Sent: Thursday, November 12, 2026 10:00:00 AM\nTo: Ann <ann@acme.example>\nSubject: May I?\n\n{ASKED}",
    ),
    Program(
        "Outlook for Android",
        "\n\nGet Outlook for Android<https://aka.ms/AAb9ysg>",
        "________________________________\nVon: House <house@home.example>\n"
        f"Gesendet: Donnerstag, 12. November 2026 10:00\nAn: Ann <ann@acme.example>\nBetreff: May I?\n\n{ASKED}",
    ),
    Program(
        "Gmail on Android", "", f"On Thu, Nov 12, 2026, 10:00 House <house@home.example> wrote:\n\n{_quoted(ASKED)}"
    ),
    Program("Gmail in a browser", "\n\n-- \nAnn Smith\nACME", f"{ON}\n\n{_quoted(ASKED)}"),
    Program(
        "Samsung Email",
        "\n\n\nSent from my Galaxy",
        f"-------- Original message --------\nFrom: House <house@home.example>\nDate: 12/11/2026 10:00\n\n{ASKED}",
    ),
    Program(
        "Yahoo on Android", "\n\nSent from Yahoo Mail on Android", f"On Thu, 12 Nov, House wrote:\n{_quoted(ASKED)}"
    ),
    Program(
        "GMX on Android",
        "\n\n-- \nDiese Nachricht wurde von meinem Android Mobiltelefon mit GMX Mail gesendet.",
        f"Am 12.11.26, 10:00, House <house@home.example> schrieb:\n{_quoted(ASKED)}",
    ),
    Program("Thunderbird", "\n\n\n-- \nAnn Smith | ACME | https://acme.example/a/b\n", f"{ON}\n{_quoted(ASKED)}"),
    Program(
        "Outlook on Windows",
        "\n\nKind regards\nAnn Smith\nACME Ltd",
        "-----Original Message-----\nFrom: House <house@home.example> \n"
        f"Sent: Thursday, November 12, 2026 10:00 AM\nTo: Ann <ann@acme.example>\nSubject: May I?\n\n{ASKED}",
    ),
    Program(
        "K-9 Mail",
        "\n-- \nSent from my Android device with K-9 Mail.",
        f"On 12 November, House wrote:\n{_quoted(ASKED)}",
    ),
)


def mail(passages: Sequence[tuple[PassageKind, str]], subject: str = "Re: May I run this?") -> Envelope:
    """A mail with these passages, whose first one is the subject unless that is empty."""
    made = envelope("x", channel="email", sender="ann@acme.example", raw={"headers": {"subject": subject}})
    those = tuple(Passage(kind=kind, text=text) for kind, text in passages)
    text = "\n\n".join(one.text for one in those)
    return replace(made, payload=replace(made.payload, normalized_text=text, passages=those))


def text_mail(text: str, subject: str = "") -> Envelope:
    """A mail of which only the text is known."""
    whole = f"{subject}\n\n{text}" if subject else text
    return envelope(whole, channel="email", sender="ann@acme.example", raw={"headers": {"subject": subject}})


def decides(message: Envelope) -> bool:
    return is_command(message, BELIEVED) or is_stop(message, BELIEVED)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.name)
def test_a_command_is_one_whatever_a_program_puts_below_it(program: Program, command: str) -> None:
    reply = mail([("quoted", "Re: May I run this?"), ("own", command + program.below), ("quoted", program.history)])
    forms = [
        reply,
        mail([("own", f"Please\n\n{command}{program.below}")], "Please"),
        mail([("own", command + program.below), ("quoted", program.history)], ""),
        text_mail(command + program.below),
        text_mail(command + program.below, "=?utf-8?q?Decided?="),
        text_mail(command.upper() + program.below),
        text_mail(command.replace(" ", "\N{NO-BREAK SPACE}", 1) + program.below),
    ]
    if program.history.startswith((">", "On", "Am")):
        forms.append(text_mail(f"{command}{program.below}\n\n{_quoted(ASKED)}"))
    forms[4] = replace(
        forms[4], payload=replace(forms[4].payload, normalized_text=f"Decided\n\n{command}{program.below}")
    )
    assert [decides(one) for one in forms] == [True] * len(forms)
    assert code_in(command_text(text_mail(CODE + program.below, "Re: Your code"))) == CODE.replace("-", "")


FORWARDED: Final = "---------- Forwarded message ---------\nFrom: Mallory <m@evil.example>\n\n"
FORMS: Final[tuple[tuple[str, Callable[[str], Envelope]], ...]] = (
    ("quoted", lambda said: mail([("quoted", "Re: x"), ("own", "Look."), ("quoted", f"> {said}")])),
    ("quoted, and nothing else", lambda said: mail([("quoted", f"Re: x\n\n> {said}")], "Re: x")),
    ("quoted without a mark", lambda said: mail([("quoted", "Re: x"), ("quoted", f"{ON}\n\n{said}")])),
    ("in a blockquote above", lambda said: mail([("quoted", "Re: x"), ("quoted", said), ("own", "Yes.")])),
    ("above a repetition of it", lambda said: mail([("quoted", "Re: x"), ("quoted", "y"), ("own", said)])),
    ("forwarded", lambda said: mail([("quoted", "Fwd: x"), ("forwarded", FORWARDED + said)], "Fwd: x")),
    ("forwarded below a word", lambda said: mail([("own", "See:"), ("forwarded", FORWARDED + said)], "")),
    ("in the subject", lambda said: mail([("quoted", said), ("own", "Thank you.")], said)),
    ("in the subject of a first mail", lambda said: mail([("own", f"{said}\n\nThank you.")], said)),
    ("in a subject alone", lambda said: text_mail("", said)),
    ("in a subject of several lines", lambda said: mail([("own", f"{said}\n\nx\n\nThank you.")], f"{said}\n\nx")),
    ("below in a subject", lambda said: mail([("own", f"Hi\n\n{said}\n\nThank you.")], f"Hi\n\n{said}")),
    ("between", lambda said: mail([("quoted", "Re: x"), ("quoted", "> Which?"), ("between", said)])),
    ("between, above", lambda said: mail([("between", said), ("own", "Yes.")], "")),
    ("below own words", lambda said: mail([("quoted", "Re: x"), ("own", f"Hello,\n\n{said}")])),
    ("below a signature", lambda said: mail([("own", f"Thanks\n-- \n{said}")], "")),
    ("with another in its signature", lambda said: mail([("own", f"{said}\n\n-- \n/approve 99999999")], "")),
    ("with another in a bare signature", lambda said: mail([("own", f"{said}\n\n  /Stop")], "")),
    ("above a letter", lambda said: mail([("own", f"{said}\n\nis what he\nwants me\nto write,\nbut why?")], "")),
    ("in a sentence", lambda said: mail([("own", f"He wrote {said}")], "")),
    ("in quotation marks", lambda said: mail([("own", f"“{said}”")], "")),
    ("split", lambda said: mail([("own", f"/\n{said[1:]}")], "")),
    ("split after its name", lambda said: mail([("own", said.replace(" ", "\n", 1) + "\nx")], "")),
    ("of two passages", lambda said: mail([("own", said), ("quoted", "> x"), ("own", "a\nb\nc\nd")], "")),
    ("quoted in a text", lambda said: text_mail(f"> {said}\n\nYes.", "Re: x")),
    ("quoted above it in a text", lambda said: text_mail(f"> do this\n{said}", "Re: x")),
)


@pytest.mark.parametrize("said", [*COMMANDS, CODE])
@pytest.mark.parametrize(("form", "made"), FORMS, ids=[name for name, _ in FORMS])
def test_no_words_of_others_in_a_mail_are_a_command(form: str, made: Callable[[str], Envelope], said: str) -> None:
    message = made(said)
    assert not decides(message), form
    if said == CODE and not form.startswith("with another"):
        assert code_in(command_text(message)) is None, form


def chat(passages: Sequence[tuple[PassageKind, str]], channel: str = "telegram") -> Envelope:
    made = envelope("x", channel=channel, endpoint="bot:@house")
    those = tuple(Passage(kind=kind, text=text) for kind, text in passages)
    text = "\n\n".join(one.text for one in those)
    return replace(made, payload=replace(made.payload, normalized_text=text, passages=those))


@pytest.mark.parametrize("command", COMMANDS)
def test_in_a_chat_all_of_a_persons_words_are_the_command(command: str) -> None:
    own: list[Envelope] = [
        envelope(command),
        envelope(f"  {command}\n"),
        envelope(f"{command}\n> May I?"),
        chat([("own", command)]),
        chat([("quoted", "May I?"), ("own", command)]),
    ]
    assert [decides(one) for one in own] == [True] * len(own)
    others: list[Envelope] = [
        envelope(f"> {command}"),
        envelope(f"> May I?\n{command}"),
        envelope(f"Look: {command}"),
        chat([("forwarded", command)]),
        chat([("quoted", command)]),
        chat([("quoted", command), ("own", "What is that?")]),
        chat([("forwarded", "May I?"), ("own", command)]),
        chat([("own", command), ("quoted", "May I?"), ("own", "or not")]),
        chat([("between", command)]),
    ]
    assert [decides(one) for one in others] == [False] * len(others)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            mail([("quoted", "Re: Which?"), ("own", "2\n\nSent from my iPhone"), ("quoted", "> 1. red")], "Re: Which?"),
            "blue",
        ),
        (mail([("own", "Hello,\n\nthe red one.\n\n-- \nAnn"), ("quoted", "> 2")], ""), "Hello,\n\nthe red one."),
        (mail([("quoted", "Re: Which?"), ("quoted", "> 2")], "Re: Which?"), ""),
        (chat([("quoted", "1"), ("own", "2")]), "blue"),
        (envelope("> 1. red\nthis"), "this"),
    ],
)
def test_an_answer_is_in_the_senders_own_words(message: Envelope, said: str) -> None:
    question = asked(question="Which?", options=["red", "blue"])
    assert resolve_answer(question, answer_text(message)) == said


def test_an_answer_of_several_paragraphs_is_whole() -> None:
    command = command_in(command_text(text_mail(f"/answer {ID} The first.\nOf May.\n\nAnd the second.", "Re: When?")))
    assert command == ChatCommand("answer", ID, "The first.\nOf May.\n\nAnd the second.")


@pytest.mark.parametrize("line", ["@house tell", "/start", "/start@house now"])
def test_only_the_senders_own_words_call_a_bot(line: str) -> None:
    def heard(message: Envelope) -> tuple[bool, str | None]:
        return is_called(message), chat_facts(message, direct=False)["command"]

    own = heard(envelope(line, endpoint="bot:@house"))
    assert own != (False, None)
    assert heard(chat([("own", line)])) == heard(chat([("quoted", "x"), ("own", line)])) == own
    others = [envelope(f"> {line}", endpoint="bot:@house"), chat([("quoted", line)]), chat([("forwarded", line)])]
    others += [chat([("own", "look"), ("quoted", line)]), chat([("own", "look"), ("between", line)])]
    assert [heard(one) for one in others] == [(False, None)] * len(others)


@pytest.mark.parametrize(
    ("channel", "line"), [("irc", "house: hello"), ("slack", "<@HOUSE> hello")], ids=["irc", "slack"]
)
def test_a_name_in_a_quotation_addresses_nobody(channel: str, line: str) -> None:
    def addressed(message: Envelope) -> str | None:
        facts = CHANNELS[channel].facts(replace(message, sender=replace(message.sender, chat_type="group")))
        return facts["addressed"]

    raw = {"target": "#room"} if channel == "irc" else None
    made = envelope(line, channel=channel, endpoint="bot:house", raw=raw)
    assert addressed(made) == "yes"
    quoted = replace(made.payload, passages=(Passage(kind="quoted", text=line),))
    assert addressed(replace(made, payload=quoted)) == "no"
    assert addressed(replace(made, payload=replace(made.payload, normalized_text=f"> {line}"))) == "no"


MARKED: Final = {
    "!stop": True,
    " !STOP ": True,
    "/stop": True,
    "!approve 1234abcd": True,
    "!answer 1234abcd tea, please\nand milk": True,
    "!stop it": False,
    "! stop": False,
    "!!stop": False,
    "!important": False,
    "look: !stop": False,
    "> !stop": False,
    "> /stop\n\n!stop": False,
    "hello\n!approve 1234abcd": False,
}


@pytest.mark.parametrize("text", MARKED)
def test_commands_have_a_mark_of_their_own_where_apps_keep_the_slash(text: str) -> None:
    def is_one(message: Envelope) -> bool:
        channel = CHANNELS[message.source.channel]
        return is_command(message, channel) or is_stop(message, channel)

    slack = envelope(text, channel="slack", sender="U1")
    assert is_one(slack) is MARKED[text]
    quoted = (Passage(kind="forwarded", text="x"), Passage(kind="own", text=text))
    after = replace(slack, payload=replace(slack.payload, normalized_text=f"x\n\n{text}", passages=quoted))
    assert not is_one(after), "nobody else's words stand above a command"
    assert is_one(envelope(text, channel="telegram")) is (MARKED[text] and text.startswith("/"))


def test_houses_commands_and_codes_take_the_mark_and_are_told_with_it() -> None:
    slack = CHANNELS["slack"]
    said = {"!help": "help", "!new": "new", "!link": "link", "!approve": "slip", "!stpo": None, "!lists": None}
    for text, name in said.items():
        found = house_command(envelope(text, channel="slack", sender="U1"), slack)
        assert (found and found.name) == name, text
    assert code_in(command_text(envelope("!start K7QM2-XWP4B", channel="slack"), "!")) == "K7QM2XWP4B"
    assert [line[:5] for line in with_mark(HELP, "!").splitlines()[1:6]] == [
        "!new ",
        "!stop",
        "!link",
        "!memo",
        "!help",
    ]
    assert with_mark("see /srv/stop, a/stop and /stopped", "!") == "see /srv/stop, a/stop and /stopped"


def test_what_is_wrong_behind_a_memory_verb_goes_to_no_butler_anywhere() -> None:
    said = {
        "/memory forget 1": HOW,
        "/memory wrong": HOW,
        "/memory off now": HOW,
        "/memory please": None,
        f"/memory forget {'what I said of my sister, ' * 3}": None,
    }
    for channel in ("api", "cli"):
        for text, answer in said.items():
            found = house_command(envelope(text, channel=channel), CHANNELS[channel])
            assert (found and found.answer) == answer, (channel, text)
