"""Replies and forwards as mail programs write them, in every language that a program has.

Called by `measure.py`. Out: cases, each with the mail as bytes and the truth by the laws. A `Style` is a program that
was seen to write so (the comment says which), unless it says "variation". A form is a style, what was done with it
(reply above, below, between the lines, forward) and whether it sends a plain text, HTML or both.
"""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from tests.words.composing import ANN, answering, mail
from tests.words.languages import CODES, LANGUAGES, MAIL, Language
from tests.words.truth import Case, Kind, Part

Role = Literal["own", "sign", "quote", "answer", "picture"]
Sent = Literal["plain", "html", "both"]
Lines = tuple[str, ...]
Signed = Callable[[Language], Lines]
"""Lines between the sender's words and the others'."""


@dataclass(frozen=True, slots=True)
class Block:
    """Paragraphs of one role. `deeper` is what the quoted person had quoted.

    In a paragraph, `**words**` are bold, `[words](url)` is a link, and `- ` begins an item of a list.
    """

    role: Role
    lines: Lines
    deeper: Lines = ()


@dataclass(frozen=True, slots=True)
class Html:
    """How a program writes blocks in HTML. `start` and `end` enclose all that follows the first sign."""

    sign: str = "<div>{}</div>"
    quote: str = "<blockquote>{}</blockquote>"
    start: str = ""
    end: str = ""
    own: str = "<div>{}</div>"
    line: str = "<div>{}</div>"
    bold: bool = False
    """Whether the words of a head are bold."""


@dataclass(frozen=True, slots=True)
class Style:
    """How one program writes replies or forwards."""

    client: str
    sign: Signed
    does: tuple[str, ...]
    sent: tuple[Sent, ...] = ("both",)
    mark: str = "> "
    html: Html = field(default_factory=Html)
    width: int = 0
    """Longer lines are wrapped; 0: they are not."""
    languages: tuple[str, ...] = CODES
    subject: Callable[[Language, str], str] = lambda _, said: f"Re: {said}"
    below: Callable[[Language], Lines] = lambda _: ()
    """The signature below the sender's words."""
    answers: bool = True
    """Whether In-Reply-To and References are set; forwards of several programs have them too."""
    kind: Kind = "quoted"
    flowed: bool = False
    encoding: str = "8bit"
    signed_in_quote: bool = False
    """The attribution is quoted as well."""
    indent: str = ""
    gap: str = "\n"
    """Between the sign and the text below it."""
    plain_of: tuple[str, str, str] = (r"*\1*", r"\1 <\2>", "[image: photo.jpg]")
    """What the plain text has for bold words, links and pictures."""
    html_sign: Signed | None = None
    """The sign in HTML, if it has other lines there."""
    sign_kind: Kind | None = None


def cases() -> Iterator[Case]:
    """Every form in every language that its program has."""
    for style in (*REPLIES, *FORWARDS, *FIRST):
        for done in style.does:
            for sent in style.sent:
                yield from (_case(style, done, sent, one) for one in LANGUAGES if one.code in style.languages)


def outlook_head(language: Language) -> Lines:
    """The head that Outlook writes above the original."""
    return _outlook()(language)


def gmail_attribution(language: Language) -> str:
    """The line that Gmail writes above the original."""
    return language.gmail.format(name=language.other, mail=MAIL)


def form_names() -> set[tuple[str, str]]:
    """The client and form of all forms."""
    return {(style.client, f"{done}, {sent}") for style in _ALL for done in style.does for sent in style.sent}


def _case(style: Style, done: str, sent: Sent, language: Language) -> Case:
    blocks = _DONE[done](style, language)
    subject = _subject(style, done, language)
    raw = mail(
        subject,
        plain=_plain(style, blocks) if sent != "html" else None,
        html=_html(style, language, blocks) if sent != "plain" else None,
        fields=answering() if style.answers else (),
        encoding=style.encoding,
        flowed=style.flowed,
    )
    parts = (Part("quoted", subject), *(Part(_kind(style, one), _said(style, one)) for one in blocks))
    return Case(style.client, f"{done}, {sent}", language.code, raw, parts)


def _subject(style: Style, done: str, language: Language) -> str:
    if "renamed" in done:
        return language.answers[0]
    return style.subject(language, language.subject)


def _kind(style: Style, block: Block) -> Kind:
    if block.role == "own":
        return "own"
    if block.role == "picture":
        return "any"
    if block.role == "answer" and style.mark:
        return "between"
    return (style.sign_kind or style.kind) if block.role == "sign" else style.kind


def _said(style: Style, block: Block) -> str:
    lines = (style.plain_of[2],) if block.role == "picture" else (*block.lines, *block.deeper)
    return "\n".join(_LINK.sub(r"\1 \2", _BOLD.sub(r"\1", line)) for line in lines)


# What people do.


def _top(style: Style, one: Language) -> Sequence[Block]:
    return (_above(style, one), Block("sign", style.sign(one)), Block("quote", one.asked))


def _top_nested(style: Style, one: Language) -> Sequence[Block]:
    older = (one.thunderbird.format(name="Ann Example"), one.own[0])
    return (_above(style, one), Block("sign", style.sign(one)), Block("quote", one.asked[:1], older))


def _top_formatted(style: Style, one: Language) -> Sequence[Block]:
    place = f"[{one.subject}](https://maps.example/x?a=1&b=2)"
    items = (f"- {one.answers[0]}", f"- {one.answers[1]}")
    said = Block("own", (f"**{one.own[0]}**", one.own[1], place, *items, one.regards))
    return (said, Block("sign", style.sign(one)), Block("quote", one.asked))


def _top_with_picture(style: Style, one: Language) -> Sequence[Block]:
    said = (Block("own", one.own[:1]), Block("picture", ()), Block("own", (one.own[1], one.regards)))
    return (*said, Block("sign", style.sign(one)), Block("quote", one.asked))


def _below(style: Style, one: Language) -> Sequence[Block]:
    return (Block("sign", style.sign(one)), Block("quote", one.asked), Block("answer", (*one.own, one.regards)))


def _between(style: Style, one: Language) -> Sequence[Block]:
    return (Block("own", one.own[:1]), *_lines_between(style, one), *_thanks(style, one))


def _only_between(style: Style, one: Language) -> Sequence[Block]:
    return _lines_between(style, one)


def _forward(style: Style, one: Language) -> Sequence[Block]:
    return (Block("sign", style.sign(one)), Block("quote", one.asked))


def _quoting(_: Style, one: Language) -> Sequence[Block]:
    return (Block("own", one.own), Block("quote", one.asked))


def _quoting_and_on(_: Style, one: Language) -> Sequence[Block]:
    return (Block("own", one.own[:1]), Block("quote", one.asked), Block("answer", (one.own[1], one.regards)))


def _all_marked(_: Style, one: Language) -> Sequence[Block]:
    return (Block("quote", one.own),)


def _listed(style: Style, one: Language) -> Sequence[Block]:
    footer = ("Garden mailing list", "garden@lists.example", "https://lists.example/mailman/listinfo/garden")
    return (*_top(style, one), Block("answer", ("_______________________________________________", *footer)))


def _disclaimed(style: Style, one: Language) -> Sequence[Block]:
    """A server adds a sentence at the end."""
    said = "This e-mail is confidential. If it is not meant for you, please delete it."
    return (*_top(style, one), Block("answer", (said,)))


def _above(style: Style, one: Language) -> Block:
    return Block("own", (*one.own, one.regards, "Ann", *style.below(one)))


def _lines_between(style: Style, one: Language) -> Sequence[Block]:
    said: list[Block] = [Block("sign", style.sign(one))]
    for asked, answer in zip(one.asked, one.answers, strict=True):
        said += [Block("quote", (asked,)), Block("answer", (answer,))]
    return said


def _thanks(style: Style, one: Language) -> Sequence[Block]:
    return (Block("quote", (one.regards, one.other)),) if style.mark else ()


_DONE: Final[dict[str, Callable[[Style, Language], Sequence[Block]]]] = {
    "reply above": _top,
    "reply above a reply": _top_nested,
    "reply above, formatted": _top_formatted,
    "reply above, with a picture": _top_with_picture,
    "reply below": _below,
    "reply between the lines": _between,
    "reply between the lines only": _only_between,
    "reply on a list": _listed,
    "reply with a disclaimer": _disclaimed,
    "forward": _forward,
    "forward with a comment": _top,
    "forward renamed": _top,
    "reply renamed": _top,
    "first mail that quotes": _quoting,
    "first mail that quotes and goes on": _quoting_and_on,
    "first mail that is one quotation": _all_marked,
}


# How programs write it.


def _plain(style: Style, blocks: Sequence[Block]) -> str:
    text = ""
    for before, block in zip((None, *blocks), blocks, strict=False):
        gap = style.gap if before and before.role == "sign" else "\n\n" if text else ""
        text += gap + _plain_block(style, block)
    return text + "\n"


def _plain_block(style: Style, block: Block) -> str:
    if block.role == "picture":
        return style.plain_of[2]
    if block.role in ("own", "answer"):
        return "\n\n".join(_wrapped(style, one) for one in block.lines)
    if block.role == "sign":
        mark = style.mark if style.signed_in_quote else style.indent
        return "\n".join(mark + line for one in block.lines for line in _wrapped(style, one).split("\n"))
    quoted = "\n\n".join(block.lines).split("\n")
    deeper = [style.mark + line for line in block.deeper]
    return "\n".join(f"{style.mark}{line}".rstrip() for line in (*quoted, *deeper))


def _wrapped(style: Style, line: str) -> str:
    return plain_line(line, style.plain_of[:2], style.width)


def plain_line(line: str, how: tuple[str, str], width: int) -> str:
    """A paragraph in a plain text: `how` are the replacements of bold words and links; 0: not wrapped."""
    text = _LINK.sub(how[1], _BOLD.sub(how[0], line))
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False) if width else text


def _html(style: Style, language: Language, blocks: Sequence[Block]) -> str:
    text, begun = "", False
    for one in blocks:
        block = Block("sign", style.html_sign(language)) if style.html_sign and one.role == "sign" else one
        if block.role in ("sign", "quote") and not begun:
            text, begun = text + style.html.start, True
        text += _html_block(style.html, block)
    return f"<html><head></head><body>{text}{style.html.end if begun else ''}</body></html>"


def _html_block(how: Html, block: Block) -> str:
    if block.role == "picture":
        return '<div><img src="cid:ii_1" alt="photo.jpg" width="562"></div>'
    if block.role in ("own", "answer"):
        return how.own.format("<br>".join(how.line.format(html_line(one)) for one in block.lines))
    if block.role == "sign":
        lines = (_html_sign(one, bold=how.bold) for one in block.lines if one.strip("_"))
        return how.sign.format("<br>".join(lines))
    deeper = "".join(f"<div>{html_line(one)}</div>" for one in block.deeper[:1])
    deeper += "".join(f"<blockquote>{html_line(one)}</blockquote>" for one in block.deeper[1:])
    return how.quote.format("".join(how.line.format(html_line(one)) for one in block.lines) + deeper)


def html_line(line: str) -> str:
    """A paragraph in HTML."""
    text = _LINK.sub(r'<a href="\2">\1</a>', _BOLD.sub(r"<b>\1</b>", html.escape(line, quote=False)))
    return f"<ul><li>{text[2:]}</li></ul>" if text.startswith("- ") else text


def _html_sign(line: str, *, bold: bool) -> str:
    text = html.escape(line, quote=False)
    if bold:
        word, colon, rest = text.partition(":")
        text = f"<b>{word}{colon}</b>{rest}"
    for address in (MAIL, ANN):
        text = text.replace(f"&lt;{address}&gt;", f'&lt;<a href="mailto:{address}">{address}</a>&gt;')
    return text


_BOLD: Final = re.compile(r"\*\*(.+?)\*\*")
_LINK: Final = re.compile(r"\[(.+?)\]\((.+?)\)")


# Attributions and heads.


def _attributed(which: Literal["gmail", "apple", "thunderbird", "yahoo"]) -> Signed:
    def sign(one: Language) -> Lines:
        line = {"gmail": one.gmail, "apple": one.apple, "thunderbird": one.thunderbird, "yahoo": one.yahoo}[which]
        return (line.format(name=one.other, mail=MAIL),)

    return sign


def _said_in(**lines: str) -> Signed:
    """An attribution by its language."""
    return lambda one: (lines.get(one.code, lines.get("any", "")).format(name=one.other, mail=MAIL),)


def _who(one: Language) -> str:
    return f"{one.other} <{MAIL}>"


def _outlook(above: str = "", *, date: str = "", sent: str = "") -> Signed:
    """The head of Outlook: from, sent, to, subject. The date may be English on phones."""

    def sign(one: Language) -> Lines:
        values = (_who(one), date or one.outlook_date, f"Ann Example <{ANN}>", one.subject)
        words = (one.outlook[0], sent or one.outlook[1], *one.outlook[2:])
        head = tuple(f"{word}{one.colon} {value}" for word, value in zip(words, values, strict=True))
        return (*filter(None, (above.format(original=one.original),)), *head)

    return sign


def _outlook_mac(one: Language) -> Lines:
    """`Date` instead of `Sent`."""
    values = (_who(one), one.outlook_date, f"Ann Example <{ANN}>", one.subject)
    words = (one.outlook[0], one.apple_head[2], *one.outlook[2:])
    return tuple(f"{word}{one.colon} {value}" for word, value in zip(words, values, strict=True))


def _apple_forward(one: Language) -> Lines:
    values = (_who(one), one.subject, one.apple_date, ANN)
    return (
        one.apple_forward,
        "",
        *(f"{word}: {value}" for word, value in zip(one.apple_head, values, strict=True)),
        "",
    )


def _gmail_forward(one: Language) -> Lines:
    word, date = one.gmail_head
    head = (f"{word}: {_who(one)}", f"Date: {date}", f"Subject: {one.subject}", f"To: Ann Example <{ANN}>")
    return ("---------- Forwarded message ---------", *head, "")


def _thunderbird_forward(one: Language) -> Lines:
    values = (one.subject, "Fri, 27 Nov 2026 16:00:00 +0100", _who(one), ANN)
    dashes = "---" if one.code == "pl" else "--------"
    head = (f"{word}: {value}" for word, value in zip(one.thunderbird_head, values, strict=True))
    return (f"{dashes} {one.thunderbird_forward} {dashes}", *head, "")


def _yahoo_forward(one: Language) -> Lines:
    said, sent, to, subject = (f"{word}{one.colon}" for word in one.outlook)
    glued = f"{said} {_who(one)}{to} Ann Example <{ANN}>{sent} {one.outlook_date}{subject} {one.subject}"
    return (f"----- {one.yahoo_forward} ----- {glued}",)


def _yahoo_forward_lines(one: Language) -> Lines:
    return (f"----- {one.yahoo_forward} -----", *_outlook()(one))


def _broken_attribution(one: Language) -> Lines:
    """Gmail breaks a long one after the bracket, or before the verb."""
    before, _, after = one.gmail.format(name=f"{one.other} (Garden Society)", mail=MAIL).partition(MAIL)
    return (before.rstrip(), MAIL + after)


def _samsung(one: Language) -> Lines:
    words = (one.outlook[0], one.apple_head[2], one.outlook[2], one.outlook[3])
    values = (_who(one), "27/11/2026 16:00 (GMT+01:00)", ANN, one.subject)
    head = (f"{word}: {value}" for word, value in zip(words, values, strict=True))
    original = "原始邮件" if one.code == "zh" else one.original
    return (f"-------- {original} --------", *head, "")


def _headed(above: str, *fields: str) -> Signed:
    """A head of one program in one language; {who}, {to} and {subject} are filled in."""

    def sign(one: Language) -> Lines:
        said = (line.format(who=_who(one), to=ANN, subject=one.subject, name=one.other, mail=MAIL) for line in fields)
        return (*filter(None, (above,)), *said, "")

    return sign


def _gmx(one: Language) -> Lines:
    words = (one.outlook[1], one.outlook[0], one.outlook[2], one.outlook[3])
    values = (one.outlook_date, f'"{one.other}" <{MAIL}>', ANN, one.subject)
    return tuple(f"{word}{one.colon} {value}" for word, value in zip(words, values, strict=True))


def _in_outlooks_words(at: int) -> Callable[[Language, str], str]:
    return lambda one, said: one.prefixes[at] + said


def _forwarded(_: Language, said: str) -> str:
    return f"Fwd: {said}"


_ANY_REPLY: Final = ("reply above", "reply above a reply", "reply below", "reply between the lines")
_FORMATTED: Final = ("reply above, formatted", "reply above, with a picture")
_ANY_FORWARD: Final = ("forward", "forward with a comment", "forward renamed")
_GMAIL: Final = Html(
    own='<div dir="ltr">{}</div>',
    start='<br><div class="gmail_quote gmail_quote_container">',
    sign='<div dir="ltr" class="gmail_attr">{}<br></div>',
    quote='<blockquote class="gmail_quote" style="margin:0px 0px 0px 0.8ex;border-left:1px solid">{}</blockquote>',
    end="</div>",
)
_GMAIL_FORWARD: Final = Html(
    own='<div dir="ltr">{}</div>',
    start='<br><div class="gmail_quote gmail_quote_container">',
    sign='<div dir="ltr" class="gmail_attr">{}<br></div><br>',
    quote="<u></u><div>{}</div>",
    end="</div>",
)
_APPLE: Final = Html(
    start="<div><br>",
    sign='<blockquote type="cite"><div>{}</div><br class="Apple-interchange-newline"></blockquote>',
    quote='<blockquote type="cite"><div>{}</div></blockquote>',
    end="</div>",
)
_CITE: Final = Html(
    own="<p>{}</p>", sign='<div class="moz-cite-prefix">{}</div>', quote='<blockquote type="cite">{}</blockquote>'
)
_OUTLOOK_WEB: Final = Html(
    own='<div class="elementToProof">{}</div>',
    start='<div id="appendonsend"></div><hr style="display:inline-block;width:98%" tabindex="-1">',
    sign='<div id="divRplyFwdMsg" dir="ltr"><font face="Calibri, sans-serif">{}</font><div>&nbsp;</div></div>',
    quote="<div>{}</div>",
    bold=True,
)
_OUTLOOK_WORD: Final = Html(
    own='<div class="WordSection1">{}</div>',
    line='<p class="MsoNormal">{}<o:p></o:p></p>',
    start='<div><div style="border:none;border-top:solid #E1E1E1 1.0pt;padding:3.0pt 0cm 0cm 0cm">',
    sign='<p class="MsoNormal">{}<o:p></o:p></p></div></div>',
    quote="{}",
    bold=True,
)
_BARE: Final = Html(sign="<div>{}</div>", quote="<div>{}</div>")
_WESTERN: Final = ("en", "de", "fr", "es")

REPLIES: Final = (
    Style("Gmail web", _attributed("gmail"), _ANY_REPLY, ("plain", "both", "html"), html=_GMAIL, width=76, gap="\n\n"),
    # The plain part has signs of formatting and pictures that the HTML shows.
    Style("Gmail web", _attributed("gmail"), _FORMATTED, html=_GMAIL, width=76, gap="\n\n"),
    Style(
        "Gmail web, long name", _broken_attribution, ("reply above", "reply between the lines"), ("plain",), gap="\n\n"
    ),
    Style(
        "Apple Mail macOS",
        _attributed("apple"),
        _FORMATTED,
        html=_APPLE,
        signed_in_quote=True,
        plain_of=(r"\1", r"\1 <\2>", "\ufffc"),
    ),
    Style(
        "Thunderbird HTML",
        _attributed("thunderbird"),
        _FORMATTED,
        html=_CITE,
        width=72,
        plain_of=(r"*\1*", r"\1 <\2>", ""),
    ),
    Style(
        "Outlook Windows",
        _outlook(),
        _FORMATTED,
        mark="",
        html=_OUTLOOK_WORD,
        subject=_in_outlooks_words(0),
        gap="\n\n",
        plain_of=(r"\1", r"\1<\2>", "[cid:image001.png@01DB3F2A.9C3E0B10]"),
    ),
    Style(
        "Outlook web",
        _outlook("________________________________"),
        _FORMATTED,
        mark="",
        html=_OUTLOOK_WEB,
        subject=_in_outlooks_words(0),
        gap="\n\n",
        plain_of=(r"\1", r"\1<\2>", "[cid:5f2c2d7e-photo]"),
    ),
    # The Android and iOS apps do not wrap, and nothing stands between the attribution and the lines.
    Style("Gmail app", _attributed("gmail"), ("reply above", "reply between the lines only"), html=_GMAIL),
    # A signature with a "-- " line above the attribution.
    Style(
        "Gmail web, signature",
        _attributed("gmail"),
        ("reply above",),
        ("plain", "both"),
        html=_GMAIL,
        width=76,
        below=lambda one: ("-- ", f"Ann Example | {one.subject} | +49 170 5550100"),
        gap="\n\n",
    ),
    # macOS 13 and later: the attribution is inside of the quotation.
    Style(
        "Apple Mail macOS",
        _attributed("apple"),
        _ANY_REPLY,
        ("plain", "both", "html"),
        html=_APPLE,
        flowed=True,
        signed_in_quote=True,
    ),
    # macOS before 13: the attribution stands above it.
    Style(
        "Apple Mail macOS before 13",
        _attributed("apple"),
        (*_ANY_REPLY, "reply between the lines only"),
        ("plain", "both"),
        html=Html(quote='<blockquote type="cite">{}</blockquote>'),
        gap="\n\n",
    ),
    Style(
        "Apple Mail iOS",
        _attributed("apple"),
        ("reply above", "reply between the lines"),
        ("both", "html"),
        html=Html(
            start='<div dir="ltr"><br>',
            sign='<blockquote type="cite">{}<br><br></blockquote>',
            quote='<blockquote type="cite"><div dir="ltr">{}</div></blockquote>',
            end="</div>",
        ),
        below=lambda one: (one.phone,),
        signed_in_quote=True,
        encoding="quoted-printable",
    ),
    # iOS with an Exchange account: the plain part is not marked.
    Style(
        "Apple Mail iOS over Exchange",
        _attributed("apple"),
        ("reply above",),
        ("plain", "both"),
        mark="",
        html=Html(quote='<blockquote type="cite">{}</blockquote>'),
        below=lambda one: (one.phone,),
        gap="\n\n",
    ),
    Style(
        "Thunderbird plain",
        _attributed("thunderbird"),
        (*_ANY_REPLY, "reply with a disclaimer"),
        ("plain",),
        width=72,
        flowed=True,
    ),
    Style(
        "Thunderbird HTML",
        _attributed("thunderbird"),
        (*_ANY_REPLY, "reply between the lines only"),
        ("html", "both"),
        html=_CITE,
    ),
    # Outlook 2003 to 365 for plain texts.
    Style(
        "Outlook plain",
        _outlook("-----{original}-----"),
        ("reply above", "reply between the lines", "reply renamed"),
        ("plain",),
        mark="",
        subject=_in_outlooks_words(0),
        gap="\n\n",
    ),
    # Outlook 2007 to 365 (Windows), written by Word.
    Style(
        "Outlook Windows",
        _outlook(),
        ("reply above", "reply between the lines", "reply renamed", "reply with a disclaimer"),
        ("plain", "both", "html"),
        mark="",
        html=_OUTLOOK_WORD,
        subject=_in_outlooks_words(0),
        gap="\n\n",
    ),
    # Outlook on the web, and the new Outlook.
    Style(
        "Outlook web",
        _outlook("________________________________"),
        ("reply above", "reply between the lines"),
        ("both", "html"),
        mark="",
        html=_OUTLOOK_WEB,
        subject=_in_outlooks_words(0),
        gap="\n\n",
        encoding="quoted-printable",
    ),
    # Outlook for iOS and Android: English dates with seconds in every language.
    Style(
        "Outlook phone",
        _outlook("________________________________", date="Friday, November 27, 2026 4:00:00 PM"),
        ("reply above",),
        ("plain", "both", "html"),
        mark="",
        html=_OUTLOOK_WEB,
        subject=lambda _, said: f"Re: {said}",
        below=lambda one: ("".join(one.outlook_phone),),
        gap="\n\n",
    ),
    Style(
        "Outlook Mac",
        _outlook_mac,
        ("reply above",),
        ("plain", "both", "html"),
        mark="",
        html=_OUTLOOK_WORD,
        gap="\n\n",
    ),
    # Hotmail and Outlook.com of 2012: `Date` first.
    Style(
        "Yahoo web",
        _attributed("yahoo"),
        ("reply above", "reply between the lines"),
        ("plain", "both", "html"),
        mark="",
        html=Html(
            own='<div class="ydp1yahoo-style-wrap">{}</div>',
            start='<div id="ydp2yahoo_quoted_1" class="yahoo_quoted"><div>',
            quote="<div><br></div><div>{}</div>",
            end="</div></div>",
        ),
        indent="    ",
        gap="  \n \n ",
    ),
    # Yahoo on phones marks the lines.
    Style(
        "Yahoo phone",
        _attributed("yahoo"),
        ("reply above",),
        html=Html(
            quote="<blockquote>{}</blockquote>", start='<blockquote style="margin:0 0 20px 0">', end="</blockquote>"
        ),
        indent="  ",
    ),
    # Proton, 2023 and later; before, "------- Original Message -------" stood above it.
    Style(
        "Proton",
        _said_in(any="On Friday, November 27th, 2026 at 4:00 PM, {name} <{mail}> wrote:"),
        ("reply above", "reply between the lines"),
        ("plain", "both", "html"),
        languages=("en", "pl", "fi", "ja"),
        html=Html(
            start='<div class="protonmail_quote">',
            quote='<blockquote class="protonmail_quote" type="cite">{}</blockquote>',
            end="</div>",
        ),
        gap="\n\n",
    ),
    Style(
        "Proton before 2023",
        _headed("------- Original Message -------", "On Friday, November 27th, 2026 at 16:00, {who} wrote:"),
        ("reply above",),
        ("plain", "html"),
        languages=("en", "de"),
        html=Html(
            start='<div class="protonmail_quote">',
            quote='<blockquote class="protonmail_quote" type="cite">{}</blockquote>',
            end="</div>",
        ),
    ),
    # GMX, web.de and mail.com: sent comes first.
    Style(
        "GMX and web.de",
        _gmx,
        ("reply above",),
        ("plain", "both", "html"),
        languages=_WESTERN,
        mark="",
        html=Html(
            start='<div name="quote" style="margin:10px 5px 5px 10px; border-left:2px solid #C3D9E5;">',
            sign='<div style="margin:0 0 10px 0;">{}</div>',
            quote='<div name="quoted-content">{}</div>',
            end="</div>",
        ),
        gap="\n\n",
    ),
    Style(
        "mail.ru",
        _said_in(
            ru="Пятница, 27 ноября 2026, 16:00 +03:00 от {name} <{mail}>:",
            en="Friday, 27 November 2026, 16:00 +03:00 from {name} <{mail}>:",
        ),
        ("reply above", "reply between the lines"),
        ("both", "html"),
        languages=("ru", "en"),
        html=Html(
            quote='<blockquote style="border-left:1px solid #0857A6;margin:10px;padding:0 0 0 10px">{}</blockquote>'
        ),
    ),
    Style(
        "Yandex",
        _said_in(any='27.11.2026, 16:00, "{name}" <{mail}>:'),
        ("reply above", "reply between the lines"),
        ("html",),
        languages=("ru", "en", "tr"),
        html=Html(quote="<blockquote><p>{}</p></blockquote>"),
    ),
    Style(
        "Seznam",
        _headed(
            "---------- Původní e-mail ----------",
            "Od: {who}",
            "Komu: {to}",
            "Datum: 27. 11. 2026 16:00:00",
            "Předmět: {subject}",
        ),
        ("reply above",),
        ("plain", "both", "html"),
        languages=("cs",),
        mark="",
        html=Html(start="<br><br><aside>", quote="<blockquote>{}</blockquote>", end="</aside>"),
    ),
    Style(
        "WP",
        _said_in(pl="Dnia 27 listopada 2026 16:00 {name} <{mail}> napisał(a):"),
        ("reply above",),
        ("plain", "both", "html"),
        languages=("pl",),
        html=Html(quote='<blockquote class="wp-quote">{}</blockquote>'),
    ),
    Style(
        "Onet",
        _said_in(pl="W dniu 2026-11-27 16:00:00 użytkownik {name} <{mail}> napisał:"),
        ("reply above", "reply below"),
        ("plain", "both"),
        languages=("pl",),
    ),
    Style(
        "Roundcube",
        _said_in(
            en="On 2026-11-27 16:00, {name} wrote:",
            de="Am 2026-11-27 16:00, schrieb {name}:",
            fr="Le 2026-11-27 16:00, {name} a écrit\u00a0:",
            es="El 2026-11-27 16:00, {name} escribió:",
            it="Il 2026-11-27 16:00 {name} ha scritto:",
            nl="{name} schreef op 2026-11-27 16:00:",
            sv="{name} skrev den 2026-11-27 16:00:",
            da="Den 2026-11-27 16:00, {name} skrev:",
            pl="W dniu 2026-11-27 16:00, {name} napisał(a):",
            ru="{name} писал(а) 2026-11-27 16:00:",
            pt="Em 2026-11-27 16:00, {name} escreveu:",
            fi="{name} kirjoitti 2026-11-27 16:00:",
            cs="Dne 2026-11-27 16:00, {name} napsal(a):",
            ja="2026-11-27 16:00 に {name} さんは書きました:",
            zh="在 2026-11-27 16:00，{name} 写道：",
            tr="2026-11-27 16:00 tarihinde {name} yazdı:",
        ),
        _ANY_REPLY,
        ("plain",),
        languages=tuple(code for code in CODES if code != "no"),
        width=72,
    ),
    Style(
        "KMail",
        _said_in(
            en="On Friday, 27 November 2026 16:00:00 CET {name} wrote:",
            de="Am Freitag, 27. November 2026, 16:00:00 MEZ schrieb {name}:",
            fr="Le vendredi 27 novembre 2026, 16:00:00 CET {name} a écrit :",
            es="El viernes, 27 de noviembre de 2026 16:00:00 (CET), {name} escribió:",
        ),
        ("reply below", "reply between the lines", "reply above"),
        ("plain",),
        languages=_WESTERN,
    ),
    Style(
        "mutt",
        _said_in(any="On Fri, Nov 27, 2026 at 04:00:00PM +0100, {name} wrote:"),
        ("reply below", "reply between the lines", "reply between the lines only", "reply on a list"),
        ("plain",),
        width=72,
    ),
    # Gnus, and Horde: no date, so that the laws do not call it an attribution.
    Style(
        "Gnus",
        _said_in(any="{name} <{mail}> writes:"),
        ("reply between the lines", "reply below"),
        ("plain",),
        sign_kind="any",
        languages=("en", "de", "sv", "cs"),
    ),
    Style(
        "Horde",
        _said_in(en="Quoting {name} <{mail}>:", de="Zitat von {name} <{mail}>:", es="{name} <{mail}> escribió:"),
        ("reply above", "reply between the lines"),
        ("plain",),
        sign_kind="any",
        languages=("en", "de", "es"),
        gap="\n\n",
    ),
    Style(
        "Fastmail",
        _said_in(any="On Fri, 27 Nov 2026, at 4:00 PM, {name} wrote:"),
        ("reply above", "reply between the lines"),
        ("plain", "both", "html"),
        languages=("en", "de", "no"),
        html=Html(quote='<blockquote type="cite" id="qt">{}</blockquote>'),
    ),
    Style(
        "Tutanota",
        _said_in(en="27 Nov 2026, 16:00 by {mail}:", de="27. Nov. 2026, 16:00 von {mail}:"),
        ("reply above",),
        ("html", "both"),
        languages=("en", "de"),
        html=Html(quote='<blockquote class="tutanota_quote">{}</blockquote>'),
    ),
    Style(
        "Mailspring",
        _said_in(any="On Nov 27 2026, at 4:00 pm, {name} <{mail}> wrote:"),
        ("reply above",),
        ("html", "both"),
        languages=("en", "nl"),
        html=Html(
            start='<div class="gmail_quote_attribution">',
            quote='<blockquote class="gmail_quote" style="margin:0 0 0 .8ex">{}</blockquote>',
            end="</div>",
        ),
    ),
    Style(
        "Spark",
        _said_in(
            en="On 27 Nov 2026 at 16:00 +0100, {name} <{mail}>, wrote:",
            de="Am 27. Nov. 2026, 16:00 +0100 schrieb {name} <{mail}>:",
            ru="27 нояб. 2026 г., 16:00 +0300, {name} <{mail}>, писал:",
        ),
        ("reply above",),
        ("plain", "both", "html"),
        languages=("en", "de", "ru"),
        html=Html(
            start='<div name="messageReplySection">', quote='<blockquote type="cite">{}</blockquote>', end="</div>"
        ),
    ),
    Style(
        "Open-Xchange",
        _said_in(
            en="On 27/11/2026 16:00 CET {name} <{mail}> wrote:",
            de="{name} <{mail}> hat am 27.11.2026 16:00 CET geschrieben:",
            it="Il 27/11/2026 16:00 CET {name} <{mail}> ha scritto:",
        ),
        ("reply above",),
        ("plain", "both", "html"),
        languages=("en", "de", "it"),
        html=Html(quote='<blockquote type="cite">{}</blockquote>'),
        gap="\n\n",
    ),
    # Lotus and HCL Notes fill up with blanks.
    Style(
        "Notes",
        lambda one: tuple(
            f"{word}:        {value}"
            for word, value in zip(
                (one.outlook[0], one.outlook[2], one.apple_head[2], one.outlook[3]),
                (f'"{one.other}" <{MAIL}>', ANN, "11/27/2026 04:00 PM", one.subject),
                strict=True,
            )
        ),
        ("reply above",),
        ("plain", "both", "html"),
        mark="",
        html=Html(sign='<font size="1">{}</font><hr>', quote="<div>{}</div>"),
        gap="\n\n",
    ),
    # eM Client 9 has no colons in the head.
    Style(
        "eM Client",
        _headed(
            "------ Original Message ------",
            'From "{name}" <{mail}>',
            "To ann@people.example",
            "Date 27/11/2026 16:00:00",
            "Subject {subject}",
        ),
        ("reply above",),
        ("plain", "both", "html"),
        languages=("en",),
        mark="",
        html=Html(quote='<div id="x"><blockquote class="cite2">{}</blockquote></div>'),
    ),
    # Windows Mail, until 2024.
    Style(
        "Windows Mail",
        _outlook(),
        ("reply above",),
        ("plain", "both"),
        mark="",
        html=_OUTLOOK_WORD,
        subject=_in_outlooks_words(0),
        below=lambda _: ("Sent from [Mail](https://go.microsoft.com/fwlink/?LinkId=550986) for Windows",),
        gap="\n\n",
        plain_of=(r"\1", r"\1<\2>", ""),
    ),
    Style(
        "Evolution",
        _said_in(
            en="On Fri, 2026-11-27 at 16:00 +0100, {name} wrote:",
            de="Am Freitag, dem 27.11.2026 um 16:00 +0100 schrieb {name}:",
            fr="Le vendredi 27 novembre 2026 à 16:00 +0100, {name} a écrit :",
        ),
        ("reply above", "reply between the lines"),
        ("plain", "both"),
        languages=("en", "de", "fr"),
        html=Html(quote='<blockquote type="cite" style="margin:0 0 0 .8ex">{}</blockquote>'),
    ),
    # K-9 puts no blank after the mark.
    Style(
        "K-9 Mail",
        _said_in(
            en="On 27 November 2026 16:00:00 CET, {name} <{mail}> wrote:",
            de="Am 27. November 2026 16:00:00 MEZ schrieb {name} <{mail}>:",
            fr="Le 27 novembre 2026 16:00:00 GMT+01:00, {name} <{mail}> a écrit :",
            nl="Op 27 november 2026 16:00:00 CET schreef {name} <{mail}>:",
            ru="27 ноября 2026 г. 16:00:00 GMT+03:00, {name} <{mail}> пишет:",
        ),
        ("reply above", "reply between the lines"),
        ("plain", "both"),
        languages=("en", "de", "fr", "nl", "ru"),
        mark=">",
        html=Html(
            start='<div class="gmail_quote">',
            quote='<blockquote class="gmail_quote" style="margin:0pt 0pt 0pt 0.8ex">{}</blockquote>',
            end="</div>",
        ),
    ),
    Style("Samsung Email", _samsung, ("reply above",), ("plain", "both", "html"), mark="", html=_BARE),
    Style(
        "Zimbra",
        _headed(
            "----- Original Message -----",
            'From: "{name}" <{mail}>',
            'To: "ann" <{to}>',
            "Sent: Friday, 27 November, 2026 16:00:00",
            "Subject: {subject}",
        ),
        ("reply above",),
        ("plain", "both", "html"),
        languages=("en", "it"),
        html=Html(
            start='<hr id="zwchr" data-marker="__DIVIDER__">',
            sign='<div data-marker="__HEADERS__">{}</div>',
            quote='<div data-marker="__QUOTED_TEXT__"><blockquote>{}</blockquote></div>',
        ),
    ),
    # Zoho has no colon at the end.
    Style(
        "Zoho",
        _said_in(any="---- On Fri, 27 Nov 2026 16:00:00 +0100 {name} <{mail}> wrote ---"),
        ("reply above",),
        ("both", "html"),
        languages=("en", "de"),
        html=Html(start='<div class="zmail_extra_hr"></div><div class="zmail_extra">', end="</div>"),
        mark="",
    ),
    Style(
        "QQ Mail",
        _headed(
            "------------------ 原始邮件 ------------------",
            '发件人: "{name}" <{mail}>;',
            "发送时间: 2026年11月27日(星期五) 下午4:00",
            '收件人: "ann"<{to}>;',
            "主题: {subject}",
        ),
        ("reply above",),
        ("plain", "both", "html"),
        languages=("zh",),
        mark="",
        html=_BARE,
        subject=lambda _, said: f"回复：{said}",
    ),
    Style(
        "Foxmail",
        _headed("", "发件人： {who}", "发送时间： 2026-11-27 16:00", "收件人： {to}", "主题： {subject}"),
        ("reply above",),
        ("plain", "both", "html"),
        languages=("zh",),
        mark="",
        html=_BARE,
        subject=lambda _, said: f"回复: {said}",
    ),
    Style(
        "NetEase",
        _said_in(
            zh='在 2026-11-27 16:00:00，"{name}" <{mail}> 写道：', en='At 2026-11-27 16:00:00, "{name}" <{mail}> wrote:'
        ),
        ("reply above",),
        ("plain", "both", "html"),
        languages=("zh", "en"),
        html=Html(quote='<blockquote id="isReplyContent" style="PADDING-LEFT: 1ex">{}</blockquote>'),
        subject=lambda one, said: f"回复:{said}" if one.code == "zh" else f"Re:{said}",
    ),
    Style(
        "Outlook Mac 2019",
        _said_in(
            en='On 27/11/2026, 16:00, "{name}" <{mail}> wrote:',
            de='Am 27.11.26, 16:00 schrieb "{name}" <{mail}>:',
            fr="Le 27/11/2026 16:00, « {name} » <{mail}> a écrit :",
            it='Il giorno 27/11/26, 16:00 "{name}" <{mail}> ha scritto:',
            nl="Op 27-11-2026 16:00 heeft {name} <{mail}> geschreven:",
            no="{name} <{mail}> skrev følgende den 27.11.2026, 16:00:",
            pl="Dnia 27.11.2026, 16:00 „{name}” <{mail}> napisał:",
            ru='27.11.2026, 16:00 пользователь "{name}" <{mail}> написал:',
            tr='"{name}" <{mail}>, 27.11.2026 16:00 tarihinde şunu yazdı:',
        ),
        ("reply above",),
        ("plain",),
        languages=("en", "de", "fr", "it", "nl", "no", "pl", "ru", "tr"),
        mark="",
        gap="\n\n",
    ),
    # A variation: the attribution of Gmail, broken as narrow programs break it.
    Style("variation: narrow", _attributed("gmail"), ("reply above", "reply between the lines"), ("plain",), width=44),
)
FORWARDS: Final = (
    Style(
        "Gmail web",
        _gmail_forward,
        _ANY_FORWARD,
        ("plain", "both", "html"),
        mark="",
        html=_GMAIL_FORWARD,
        subject=_forwarded,
        kind="forwarded",
    ),
    # macOS marks all of it; the laws do not say whether marked lines below such a line are quoted or forwarded.
    Style(
        "Apple Mail macOS",
        _apple_forward,
        _ANY_FORWARD,
        ("plain", "both", "html"),
        html=Html(start='<div><br><blockquote type="cite">', quote="<div>{}</div>", end="</blockquote></div>"),
        subject=_forwarded,
        kind="others",
        signed_in_quote=True,
    ),
    # With the setting that does not mark quotations, and on iOS for plain texts.
    Style(
        "Apple Mail unmarked",
        _apple_forward,
        ("forward", "forward with a comment"),
        ("plain",),
        mark="",
        subject=_forwarded,
        kind="forwarded",
    ),
    # Thunderbird sets References, and since 2021 In-Reply-To.
    Style(
        "Thunderbird",
        _thunderbird_forward,
        _ANY_FORWARD,
        ("plain", "html", "both"),
        mark="",
        html=Html(start='<div class="moz-forward-container"><br><br>', sign="{}<br><br>", quote="{}", end="</div>"),
        subject=_forwarded,
        kind="forwarded",
    ),
    Style(
        "Outlook Windows",
        _outlook(),
        _ANY_FORWARD,
        ("plain", "both", "html"),
        mark="",
        html=_OUTLOOK_WORD,
        subject=_in_outlooks_words(1),
        kind="forwarded",
        answers=False,
        gap="\n\n",
    ),
    Style(
        "Outlook web",
        _outlook("________________________________"),
        _ANY_FORWARD,
        ("both", "html"),
        mark="",
        html=_OUTLOOK_WEB,
        subject=_in_outlooks_words(1),
        kind="forwarded",
        answers=False,
        gap="\n\n",
    ),
    # Over Exchange, forwards may name the original: then a head says only that it is by somebody else.
    Style(
        "Outlook web, in its thread",
        _outlook("________________________________"),
        ("forward with a comment",),
        ("both",),
        mark="",
        html=_OUTLOOK_WEB,
        subject=_in_outlooks_words(1),
        gap="\n\n",
    ),
    Style(
        "Yahoo web",
        _yahoo_forward,
        ("forward", "forward with a comment"),
        ("plain", "both"),
        mark="",
        html=Html(start='<div class="yahoo_quoted"><div>', quote="<div>{}</div>", end="</div></div>"),
        subject=lambda _, said: f"Fw: {said}",
        html_sign=_yahoo_forward_lines,
        indent="   ",
        kind="forwarded",
        answers=False,
    ),
    Style(
        "Proton",
        _headed(
            "------- Forwarded Message -------",
            "From: {who}",
            "Date: On Friday, November 27th, 2026 at 4:00 PM",
            "Subject: {subject}",
            "To: {to}",
        ),
        ("forward", "forward with a comment"),
        ("html", "plain"),
        languages=("en", "de"),
        html=Html(
            start='<div class="protonmail_quote">',
            quote='<blockquote class="protonmail_quote" type="cite">{}</blockquote>',
            end="</div>",
        ),
        subject=lambda _, said: f"Fw: {said}",
        kind="others",
    ),
    Style(
        "GMX and web.de",
        _gmx,
        ("forward", "forward with a comment"),
        ("plain", "both"),
        languages=_WESTERN,
        mark="",
        html=Html(start='<div name="quote" style="margin:10px 5px 5px 10px">', quote="<div>{}</div>", end="</div>"),
        subject=_forwarded,
        kind="forwarded",
        answers=False,
        gap="\n\n",
    ),
    Style(
        "mail.ru",
        _headed(
            "-------- Пересылаемое сообщение --------",
            "От: {who}",
            "Кому: {to}",
            "Дата: Пятница, 27 ноября 2026, 16:00 +03:00",
            "Тема: {subject}",
        ),
        ("forward", "forward with a comment"),
        ("plain", "both", "html"),
        languages=("ru",),
        mark="",
        html=_BARE,
        subject=_forwarded,
        kind="forwarded",
    ),
    Style(
        "Yandex",
        _headed("-------- Пересылаемое сообщение --------", '27.11.2026, 16:00, "{name}" <{mail}>:'),
        ("forward", "forward with a comment"),
        ("html", "both"),
        languages=("ru",),
        mark="",
        html=_BARE,
        subject=_forwarded,
        kind="forwarded",
    ),
    Style(
        "Seznam",
        _headed(
            "---------- Přeposlaná zpráva ----------",
            "Od: {who}",
            "Komu: {to}",
            "Datum: 27. 11. 2026 16:00:00",
            "Předmět: {subject}",
        ),
        ("forward", "forward with a comment"),
        ("plain", "both"),
        languages=("cs",),
        mark="",
        html=_BARE,
        subject=_forwarded,
        kind="forwarded",
        answers=False,
    ),
    Style(
        "KMail",
        _headed(
            "----------  Forwarded Message  ----------",
            "",
            "Subject: {subject}",
            "Date: Friday, 27 November 2026, 16:00:00 CET",
            "From: {who}",
            "To: {to}",
        ),
        ("forward", "forward with a comment"),
        ("plain",),
        languages=("en", "de"),
        mark="",
        subject=_forwarded,
        kind="forwarded",
        answers=False,
    ),
    Style(
        "mutt",
        _headed(
            "----- Forwarded message from {name} <{mail}> -----",
            "Date: Fri, 27 Nov 2026 16:00:00 +0100",
            "From: {who}",
            "To: {to}",
            "Subject: {subject}",
        ),
        ("forward", "forward with a comment"),
        ("plain",),
        languages=("en", "de", "ja"),
        mark="",
        subject=_forwarded,
        kind="forwarded",
        answers=False,
    ),
    # Roundcube in the languages of which "Original Message" was seen.
    Style(
        "Roundcube",
        _headed(
            "-------- Original Message --------",
            "Subject: {subject}",
            "Date: 2026-11-27 16:00",
            "From: {who}",
            "To: {to}",
        ),
        ("forward", "forward with a comment"),
        ("plain",),
        languages=("en",),
        mark="",
        subject=_forwarded,
        kind="forwarded",
        answers=False,
    ),
    Style(
        "Samsung Email",
        _samsung,
        ("forward", "forward with a comment"),
        ("plain", "both"),
        mark="",
        html=_BARE,
        subject=lambda _, said: f"Fwd: {said}",
        kind="forwarded",
        answers=False,
    ),
    Style(
        "QQ Mail",
        _headed(
            "------------------ 原始邮件 ------------------",
            '发件人: "{name}" <{mail}>;',
            "发送时间: 2026年11月27日(星期五) 下午4:00",
            '收件人: "ann"<{to}>;',
            "主题: {subject}",
        ),
        ("forward", "forward with a comment"),
        ("plain", "both"),
        languages=("zh",),
        mark="",
        html=_BARE,
        subject=lambda _, said: f"转发：{said}",
        kind="forwarded",
        answers=False,
    ),
    Style(
        "Foxmail",
        _headed("", "发件人： {who}", "发送时间： 2026-11-27 16:00", "收件人： {to}", "主题： {subject}"),
        ("forward", "forward with a comment", "forward renamed"),
        ("plain", "both"),
        languages=("zh",),
        mark="",
        html=_BARE,
        subject=lambda _, said: f"转发: {said}",
        kind="forwarded",
        answers=False,
    ),
)
FIRST: Final = (
    # Somebody pastes lines and marks them, in a mail that answers nothing.
    Style(
        "by hand",
        lambda _: (),
        ("first mail that quotes", "first mail that quotes and goes on"),
        ("plain", "html"),
        subject=lambda _, said: said,
        answers=False,
        html=Html(own="<p>{}</p>"),
    ),
    # Mail on macOS 15 and iOS 18, started by a program or the share sheet: all that the sender wrote is marked.
    Style(
        "Apple Mail, shared",
        lambda _: (),
        ("first mail that is one quotation",),
        ("plain", "html"),
        subject=lambda _, said: said,
        answers=False,
        html=Html(quote='<blockquote type="cite">{}</blockquote>'),
        kind="between",
    ),
    # Lists of Mailman add a footer.
    Style(
        "Mailman",
        _attributed("thunderbird"),
        ("reply on a list",),
        ("plain",),
        subject=lambda _, said: f"Re: [Garden] {said}",
        width=72,
    ),
)
_ALL: Final = (*REPLIES, *FORWARDS, *FIRST)
