"""CommonMark in the markup of platforms, and the parts that a reply is sent as."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any, Final, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from switchboard.connectors.kernel.chunking import length
from switchboard.connectors.kernel.parts import (
    REPEAT_NOTE,
    ReplyDestination,
    mark_as_resent,
    plain,
    plan,
    unanswering,
    without_files,
)
from switchboard.connectors.kernel.rendering import render, rich_text
from switchboard.core.files.reply_files import size_text
from switchboard.domain.json_values import JsonObject
from switchboard.domain.ledger import ReplyChoice
from switchboard.ports.connector import Capabilities, Dialect, FileOut, Markup
from tests.unit.test_connector_chunking import TEXTS

CHAT: Final = Capabilities(
    text_limit=4096, text_unit="utf16", caption_limit=1024, markup="entities", max_file_out=10**8
)
MARKUPS: Final = ("plain", "entities", "html", "markdown", "whatsapp")


async def nothing() -> AsyncIterator[bytes]:
    yield b""


FILE: Final = FileOut("a.txt", "text/plain", 0, nothing)


@pytest.mark.parametrize(
    ("source", "text", "entities"),
    [
        ("plain", "plain", []),
        ("**bold** and *thin*", "bold and thin", [("bold", 0, 4, None), ("italic", 9, 4, None)]),
        ("# Head\n\ntext", "Head\n\ntext", [("bold", 0, 4, None)]),
        ("😀 `x`", "😀 x", [("code", 3, 1, None)]),
        ("[a](https://x.example)", "a", [("text_link", 0, 1, "https://x.example")]),
        ("```py\nx = 1\n```", "x = 1", [("pre", 0, 5, "py")]),
        ("- a\n- b\n  - c", "• a\n• b\n  • c", []),
        ("3. a\n4. b", "3. a\n4. b", []),
        ("> said\n\nyes", "said\n\nyes", [("blockquote", 0, 4, None)]),
        ("~~no~~ <b>x</b>", "no <b>x</b>", [("strikethrough", 0, 2, None)]),
        ("a\n\n---\n\nb", "a\n\n———\n\nb", []),
        ("|a|b|\n|-|-|\n|1|2|", "|a|b|\n|-|-|\n|1|2|", [("pre", 0, 17, None)]),
        ("broken **bold", "broken **bold", []),
    ],
)
def test_entities(source: str, text: str, entities: list[tuple[Any, ...]]) -> None:
    made = render(source, "entities")
    assert made.text == text
    assert made.markup is not None
    shown = [
        (entity["type"], entity["offset"], entity["length"], entity.get("url", entity.get("language")))
        for entity in made.markup["entities"]
    ]
    assert shown == entities


@given(TEXTS)
def test_spans_lie_within_the_text_and_nest(source: str) -> None:
    rich = rich_text(source)
    for span in rich.spans:
        assert 0 <= span.start < span.end <= len(rich.text)
    for one in rich.spans:
        assert not any(one.start < other.start < one.end < other.end for other in rich.spans)


@given(TEXTS, st.sampled_from(MARKUPS), st.integers(20, 200))
def test_every_part_fits_and_none_is_empty(source: str, markup: str, limit: int) -> None:
    chat = replace(CHAT, text_limit=limit, markup=cast("Markup", markup), mentions=r"[a-z]")
    for part in plan(source, (), chat, to("1")):
        assert part.text.strip()
        sent = [
            part.text,
            *(str(one) for name, one in (part.rendered or {}).items() if name in {"markdown", "whatsapp"}),
        ]
        assert max(length(one, "utf16") for one in sent) <= limit
        assert limit <= 100 or REPEAT_NOTE in mark_as_resent(part, chat).text
        assert length(mark_as_resent(part, chat).text, "utf16") <= limit


def test_html_shows_the_html_of_others_and_plain_text_where_a_link_leads() -> None:
    made = render("[a](https://x.example) <script>", "html")
    assert made.text == "a (https://x.example) <script>"
    assert made.markup == {"html": '<p><a href="https://x.example">a</a> &lt;script&gt;</p>\n'}
    assert render("**a**", "plain").markup is None


MARKED: Final = [
    ("**bold** and *thin* ~~no~~", "**bold** and *thin* ~~no~~", "*bold* and _thin_ ~no~"),
    ("***both***", "***both***", "_*both*_"),
    ("un**fra**me", "un**fra**me", "unframe"),
    ("**two\nlines**", "**two**\n**lines**", "*two*\n*lines*"),
    ("# Head\n\n### Sub\n\n#### Deep", "# Head\n\n### Sub\n\n**Deep**", "*Head*\n\n*Sub*\n\n*Deep*"),
    ("[a](https://x.example/b_(c))", "[a](https://x.example/b_%28c%29)", "a (https://x.example/b_(c))"),
    ("<https://x.example/a_b>", "https://x.example/a_b", "https://x.example/a_b"),
    ("![a](https://x.example)", "[a](https://x.example)", "a (https://x.example)"),
    ("`a*b` ``c`d``", "`a*b` `` c`d ``", "`a*b` c`d"),
    ("```py\nx = 1\n\ny = 2\n```", "```py\nx = 1\n\ny = 2\n```", "```\nx = 1\n\ny = 2\n```"),
    ("~~~\na ``` b\n~~~", "```\na ``\u200b` b\n```", "```\na ``\u200b` b\n```"),
    ("|a|b|\n|-|-|\n|1|2|", "```\n|a|b|\n|-|-|\n|1|2|\n```", "```\n|a|b|\n|-|-|\n|1|2|\n```"),
    ("- a\n  - b\n- c\n  ```\n  d\n  ```", "- a\n    - b\n- c\n```\nd\n```", "- a\n    - b\n- c\n```\nd\n```"),
    ("3. a\n4. b", "3. a\n4. b", "3. a\n4. b"),
    ("> said\n> *so*\n\nyes", "> said\n> *so*\n\nyes", "> said\n> _so_\n\nyes"),
    ("> said\n# yes", "> said\n\n# yes", "> said\n\n*yes*"),
    ("> ```\n> x\n> ```", "> ```\n> x\n> ```", "> ```\n> x\n> ```"),
    ("a\n\n***\n\nb", "a\n\n———\n\nb", "a\n\n———\n\nb"),
    (r"\*a\* snake_case 2 * 3 ||b|| \# c", r"\*a\* snake_case 2 * 3 \||b\|| # c", "*a* snake_case 2 * 3 ||b|| # c"),
    ("<b>x</b> 1 < 2", r"\<b>x\</b> 1 < 2", "<b>x</b> 1 < 2"),
]
DISCORD: Final = Dialect(headings=3)


@pytest.mark.parametrize(("source", "markdown", "whatsapp"), MARKED)
def test_marks_of_dialects(source: str, markdown: str, whatsapp: str) -> None:
    assert render(source, "markdown", DISCORD).markup == {"markdown": markdown}
    assert render(source, "whatsapp").markup == {"whatsapp": whatsapp}
    assert rich_text(markdown.replace("\u200b", "")).text.split() == rich_text(source).text.split(), "it says the same"


WORDS_WITHOUT_MARKS: Final = re.compile(r"[^\W_]+")


@given(TEXTS, st.sampled_from(["markdown", "whatsapp"]))
def test_marks_change_no_word_of_the_plain_text(source: str, markup: str) -> None:
    made = render(source, cast("Markup", markup), Dialect(code_language=False))
    written = (made.markup or {markup: made.text})[markup]
    assert WORDS_WITHOUT_MARKS.findall(written) == WORDS_WITHOUT_MARKS.findall(made.text)


# Mentions

SLACK_MENTIONS: Final = r"<(?=[@!])"
DISCORD_MENTIONS: Final = r"@(?=everyone|here)|<(?=@)"
PINGING: Final = {
    SLACK_MENTIONS: re.compile(r"<(@[UW]\w+|!(channel|here|everyone|subteam))"),
    DISCORD_MENTIONS: re.compile(r"@(everyone|here)|<@[!&]?\d+>"),
}
MENTIONS: Final = (
    "<",
    "@",
    "<@U1>",
    "<@!55>",
    "<!channel>",
    "every",
    "one",
    "@here",
    "&lt;",
    "&#64;",
    "<@U1|x>",
    "55>",
)
MARKS: Final = (
    "\\",
    "**",
    "*",
    "`",
    "_",
    "~~",
    "> ",
    "- ",
    "# ",
    "```\n",
    "| a |",
    "\n|-|\n",
    "\n",
    " ",
    "[a](",
    ")",
    "![",
    "]",
)
FRAGMENTS: Final = st.sampled_from((*MENTIONS, *MARKS, "](<@U1>)"))


@given(st.lists(FRAGMENTS, max_size=30).map("".join), st.sampled_from(MARKUPS), st.sampled_from(sorted(PINGING)))
def test_nothing_in_a_reply_pings_anybody(source: str, markup: str, mentions: str) -> None:
    chat = replace(CHAT, markup=cast("Markup", markup), mentions=mentions)
    file = replace(FILE, filename=source or "a", size_bytes=10**9)
    parts = plan(source, (file,), chat, to())
    parts += tuple(without_files(replace(one, files=(file,)), "no", chat) for one in parts)
    for part in parts:
        entities = (part.rendered or {}).get("entities", [])
        urls = [one["url"] for one in entities if "url" in one]
        marked = [(part.rendered or {}).get(name, "") for name in ("markdown", "whatsapp")]
        for text in (part.text, *marked, *urls):
            assert not PINGING[mentions].search(text), text
            assert text.replace("\u200b", "").strip() or not text


@pytest.mark.parametrize(
    "source", ["Ask <@U1>, <!channel> and ann@x.example: 1 < 2", "@everyone `@here` **@every**one"]
)
def test_a_text_with_mentions_looks_the_same(source: str) -> None:
    for mentions in PINGING:
        made, usual = render(source, "entities", mentions=mentions), render(source, "entities")
        assert made.text.replace("\u200b", "") == usual.text
        for markup in (made, usual):
            assert markup.markup is not None
        shown = [_spoken(one.text, cast("JsonObject", one.markup)) for one in (made, usual)]
        assert shown[0] == shown[1], "spans have moved with the words"


def _spoken(text: str, markup: JsonObject) -> list[tuple[str, str]]:
    """The kinds of spans, and the words in them."""
    spans = ((one["type"], one["offset"], one["offset"] + one["length"]) for one in markup["entities"])
    return [(kind, text[start:end].replace("\u200b", "")) for kind, start, end in spans]


def test_an_image_is_a_link_so_that_nothing_is_fetched_unasked() -> None:
    made = render('![a"b](https://x.example/?q=secret)', "html")
    assert made.markup == {"html": '<p><a href="https://x.example/?q=secret">a&quot;b</a></p>\n'}


def test_a_javascript_link_is_no_link() -> None:
    made = render("[a](javascript:alert(1))", "entities")
    assert made.markup == {"entities": []}


def test_deep_nesting_is_no_danger() -> None:
    assert render("> " * 2000 + "x", "entities").text
    assert render("*" * 4000 + "x" + "*" * 4000, "entities").text


def test_what_no_person_reads_is_not_parsed() -> None:
    assert render("**a** " * 40_000, "html").markup is None


def to(reply_to: str | None = "7") -> ReplyDestination:
    return ReplyDestination({"chat": 1}, reply_to, "Telegram")


def test_the_first_part_answers_and_a_short_text_goes_with_its_only_file() -> None:
    [part] = plan("**look**", (FILE,), CHAT, to())
    assert (part.text, part.files, part.reply_to, part.address) == ("look", (FILE,), "7", {"chat": 1})
    parts = plan("x" * 1025, (FILE, FILE), CHAT, to())
    assert [(bool(part.text), part.files, part.reply_to) for part in parts] == [
        (True, (), "7"),
        (False, (FILE,), None),
        (False, (FILE,), None),
    ]
    assert plan("", (), CHAT, to()) == ()


def test_a_mail_brings_all_files_that_fit() -> None:
    mail = replace(CHAT, files_per_part=3, max_file_out=25)
    files = [FileOut(f"{n}.txt", "text/plain", size, nothing) for n, size in enumerate((10, 10, 10, 30, 1, 1, 1))]
    parts = plan("Here.", files, mail, to())
    assert [[one.filename for one in part.files] for part in parts] == [
        ["0.txt", "1.txt"],
        ["2.txt", "4.txt", "5.txt"],
        ["6.txt"],
    ]
    assert [part.text for part in parts] == ["Here.\n\n[3.txt, 30 bytes: too large for Telegram]", "", ""]


def test_a_file_that_cannot_be_sent_is_told_in_words() -> None:
    odd = FileOut("a/../\u202eb\n.pdf", "application/pdf", 31_400_000, nothing)
    [part] = plan("Here.", (odd,), replace(CHAT, max_file_out=1), to())
    assert (part.text, part.files) == ("Here.\n\n[b .pdf, 31 MB: too large for Telegram]", ())
    [part] = plan("", (odd,), replace(CHAT, max_file_out=0), to())
    assert part.text == "[b .pdf, 31 MB: Telegram takes no files]"
    [part] = plan("**Here.**", (odd,), replace(CHAT, max_file_out=50_000_000), to())
    instead = without_files(part, "Telegram does not take it: 400 Bad Request", CHAT)
    assert instead.text == "Here.\n\n[b .pdf, 31 MB: Telegram does not take it: 400 Bad Request]"
    assert (instead.files, instead.rendered, instead.reply_to) == ((), part.rendered, "7")
    short = without_files(replace(part, text="x" * 4090), "no", CHAT)
    assert short.text == "x" * 4090, "what fits no more is left out"


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (48_213, "48 KB"), (1_240_000, "1.2 MB"), (3 * 10**9, "3.0 GB")],
)
def test_sizes_as_people_read_them(size: int, text: str) -> None:
    assert size_text(size) == text


def test_a_part_falls_back_and_is_marked() -> None:
    [part] = plan("**look**", (), CHAT, to())
    assert (plain(part).rendered, plain(part).text, unanswering(part).reply_to) == (None, "look", None)
    again = mark_as_resent(part, CHAT)
    assert again.text == f"look\n\n{REPEAT_NOTE}"
    assert again.rendered == part.rendered
    full = replace(part, text="x" * 4096)
    assert mark_as_resent(full, CHAT) == full


@pytest.mark.parametrize(
    ("labels", "shown"),
    [
        (("Approve (1a2b3c4d)", "Refuse (1a2b3c4d)"), ["Approve (1a2b3c4d)", "Refuse (1a2b3c4d)"]),
        (("1. the garden, and its gate", "2. the garden"), ["1. the garden, and …", "2. the garden"]),
        (("the garden, and its gate", "the garden, and its door"), []),
    ],
)
def test_labels_are_cut_unless_two_would_look_alike(labels: tuple[str, ...], shown: list[str]) -> None:
    choices = tuple(ReplyChoice(label, f"t{number}") for number, label in enumerate(labels))
    [part] = plan("Which?", (), replace(CHAT, buttons=3, label_limit=20), ReplyDestination({}, choices=choices))
    assert [one.label for one in part.choices or ()] == shown
    assert part.text == "Which?"
