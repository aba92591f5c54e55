"""`core/mail/hypertext.py`: what a person would see of the HTML of a stranger, and what that may cost."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchboard.core.mail.hypertext import text_of_html
from switchboard.core.mail.parse import envelope_from_mail
from tests.strategies import NOW


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("", ""),
        ("just  text", "just text"),
        ("<p>a<p>b<br>c<div>d</div>e", "a\nb\nc\nd\ne"),
        ("<title>t</title><style>s</style><script>x</script><!-- c -->a", "a"),
        ("<div hidden><script>x</script>h</div>a<i style='Display : none'>h</i>", "a"),
        ("<ul><li>a<li>b</ul>", "a\nb"),
        ("<table><tr><td>a</td><td>b</td></tr><tr><td>c</td></tr></table>", "a b\nc"),
        ("a <a href='https://x.example/1'>here</a> b", "a here (https://x.example/1) b"),
        ("<a href='https://x.example'>https://x.example</a>", "https://x.example"),
        ("<a href='mailto:a@b.example'>a@b.example</a>", "a@b.example"),
        ("<a href='javascript:x()'>no</a><a>none</a>", "nonone"),
        ("a&nbsp;&amp;&lt;b", "a &<b"),
        ("<div>" * 2000 + "deep", "deep"),
    ],
)
def test_html_as_text(source: str, expected: str) -> None:
    assert text_of_html(source) == expected


def test_pictures_inside_the_document_do_not_use_up_the_room() -> None:
    assert "after" in text_of_html(f"<img src='data:image/png;base64,{'A' * (500_000)}'>after")


_TAGS = [*"<>/abdiv '\"=&;!-#x", "<div>", "</p>", "<table>", "<a href=", "</a>", "<li hidden>", "\n", "\xa0"]


@given(st.lists(st.sampled_from(_TAGS), max_size=60).map("".join))
def test_any_html_is_survived(source: str) -> None:
    assert isinstance(text_of_html(source), str)


HIDDEN = [
    "font-size:0",
    "font-size: 0px",
    "font-size:1px",
    "font:0/0 a",
    "FONT-SIZE:.01em",
    "display:none!important",
    "display:/**/none",
    "visibility:hidden",
    "visibility:collapse",
    "opacity:0",
    "opacity:0%",
    "filter:opacity(0)",
    "mso-hide:all",
    "max-height:0;overflow:hidden",
    "overflow-x:hidden;width:0",
    "position:absolute;left:-9999px",
    "position:fixed;top:-200em",
    "text-indent:-9999px",
    "margin-left:-10000px",
    "margin:0 0 0 -10000px",
    "transform:scale(0)",
    "transform:translateX(-9999px)",
    "clip-path:inset(50%)",
    "position:absolute;clip:rect(0 0 0 0)",
    "color:#fff",
    "color:white",
    "color:#fefefe",
    "color:rgb(255, 255, 255)",
    "color:transparent",
    "color:rgba(0,0,0,0)",
    "color:#ffffff00",
    "background:#000;color:#010101",
    "background-color:black",
]


@pytest.mark.parametrize("style", HIDDEN)
def test_what_a_person_does_not_see_is_dropped(style: str) -> None:
    assert text_of_html(f"<div style='{style}'>no <b>no</b></div>yes") == "yes"
    assert text_of_html(f"<style>.x, p {{ {style} }}</style><div class='a X'>no</div>yes") == "yes"
    assert text_of_html(f"yes<p><b style='{style}'>no<p>no</b>") == "yes", "it goes on in the next paragraph"


@pytest.mark.parametrize(
    "source",
    [
        "<div hidden>no</div>yes",
        "<font color=white>no</font>yes",
        "<table bgcolor=navy><tr><td><font color='#000080'>no</font><td><font color=white>yes</table>",
        "<style>#x{display:none}</style><p id=x>no<p>yes",
        "<style>td.x{display:none}</style><table><td class=x>no<td>yes</table>",
        "<style>.a .b{display:none}</style><p class=b>yes<div class=a><p class=b>no",
        "<style>.a>.b{display:none}</style><p class=b>yes<div class=a><p class=b>no",
        "<style>[class=x]{display:none}</style><p class=x>no<p>yes",
        "<style>*{font-size:0}b{font-size:12px}</style>no<p>no<b>yes</b>",
        "<style>@media screen and (min-width:1px){.x{display:none}}</style><p class=x>no<p>yes",
        "<style>@media (max-width:600px){.x{display:none}}</style><p class=x>yes",
        "<style>@media print{.x{display:none}}</style><p class=x>yes",
        "<style media=print>.x{display:none}</style><p class=x>yes",
        "<style>@media (prefers-color-scheme:dark){.x{display:none}}</style><p class=x>yes",
        "<style>@font-face{src:url(x)}/* } */.x{display:none}</style><p class=x>no<p>yes",
        "<p class=x>no<p>yes<style>.x{display:none}</style>",
        r"<p style='d\69splay:none'>no<p>yes",
        r"<p style='d\000069 splay:n\6Fne'>no<p>yes",
        r"<p style='displa\y:none'>no<p style='\64 isplay:none'>no<p>yes",
        r"<p style='d&#92;69splay:none'>no<p>yes",
        r"<style>p.\78{visibilit\79:hidden}</style><p class=x>no<p>yes",
        r"<style>.sm\:x{display:none}</style><p class=sm:x>no<p>yes",
        r"<p style='display\3anone'>yes",
        r"<p style='display:none\;display:block'>yes",
        "<p style='\\110000\\0\\'>yes",
        "<style>p{display:none}p.x{display:block}</style><p>no<p class=x>yes",
        "<style>p{display:none!important}</style><p style='display:block'>no</p>yes",
        "<style>p{display:none}</style><p style='display:block'>yes",
        "<div style='font-size:0'>no<span style='font-size:13px'>yes</span></div>",
        "<div style='font-size:0'>no<span style='font-size:2em'>no</span></div>yes",
        "<div style='visibility:hidden'>no<b style='visibility:visible'>yes</b></div>",
        "<div style='display:none'>no<b style='display:inline'>no</b></div>yes",
        "<div style='background:#123456;color:#fff'>yes",
        "<div style='background:rebeccapurple;color:#fff'>yes",
        "<div style='background:url(x.png);color:#fff'>yes",
        "<table><td background=x.png><font color=white>yes",
        "<div style='background:#000'><a href=x:y>yes</a>",
        "yes<span style='display:none'>no<div>no</span>no</div>no",
        "<p style='display:none'>no<p>yes",
        "<ul><li style='display:none'>no<li>yes</ul>",
        "<ul><li style='display:none'>no<ul><li>no</ul>no<li>yes</ul>",
        "<h1 style='display:none'>no</h2>yes",
        "<table><tr style='display:none'><td>no<td>no<tr><td>yes</table>",
        "<table><tr><td style='display:none'>no<b>no<td>yes</table>",
        "<table><td><div style='display:none'>no<table><td>no</table>no<td>yes</table>",
        "<table style='display:none'><td>no</div></p>no</table>yes",
        "<b style='display:none'>no<i>no</b>yes</i>",
        "<template>no</template><noscript>no</noscript><iframe>no</iframe>yes",
        "yes<p style='display:none'>no",
        "yes<p title='",
        "yes<!-- no",
    ],
)
def test_only_what_a_person_sees_is_told(source: str) -> None:
    assert set(text_of_html(source).split()) == {"yes"}


FORMATTING = ("b", "i", "u", "s", "a", "em", "font", "tt", "big", "code", "nobr", "small", "strike", "strong")
REOPENED = "<p>" + "".join(f"<{FORMATTING[i % 14]} a={i}>" for i in range(3000)) + "<p>x" * 2000


def calls(work: Callable[[], object]) -> int:
    """How many functions, Python's own included, are called meanwhile, once all that is imported late is there."""
    work()
    count = 0

    def counted(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def memory(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


CALLS_PER_BYTE, BYTES_PER_BYTE, ONCE = 40, 400, 20_000


@pytest.mark.parametrize(
    "source",
    [
        REOPENED,
        "<select><option>" * 3000,
        "<table><td>" * 4000,
        "<a href=http://x><table><td>" * 2000,
        "<b>" * 10_000 + "</i>" * 2000 + "</b>" * 10_000,
        "<style>" + "a," * 20_000 + "a{color:red}</style>" + "<a>" * 5000,
        "<style>" + ".x .y{color:red}" * 2000 + "</style>" + "<a class=y>" * 3000,
        "<style>" + "".join(f".a{i}{{color:red}}" for i in range(3000)) + "</style>" + "<a class='a1 a2'>" * 3000,
        "<p style='" + "color:red;" * 4000 + "'>x",
        "<p class='" + "a " * 20_000 + "'>x",
        "<style>" + "/*" * 20_000,
        "<style>" + "@media(" * 9000,
        "&#" + "9" * 40_000,
    ],
    ids=lambda source: source[:30],
)
def test_html_costs_what_its_length_allows(source: str) -> None:
    assert calls(lambda: text_of_html(source)) <= CALLS_PER_BYTE * len(source) + ONCE
    assert memory(lambda: text_of_html(source)) <= BYTES_PER_BYTE * len(source) + 100 * ONCE


_FRAGMENTS = [
    *(
        f"<{tag}>"
        for tag in ("b", "i", "font a=1", "a href=http://x", "p", "div", "table", "td", "tr", "li", "ul", "h1")
    ),
    *(f"</{tag}>" for tag in ("b", "i", "a", "p", "div", "table", "td", "tr", "li", "span", "h2")),
    *(
        "<select>",
        "<option>",
        "<svg>",
        "<template>",
        "<span class=x>",
        "<p style='font-size:0'>",
        "<style>",
        "</style>",
    ),
    *(".x{color:red}", ".x .y,", "{", "}", "/*", "@media(", "x", "&amp;", "&#9", "<", "<!--", '<a b="', " "),
    *("\n--b1\n", "\n--b1\nContent-Type: text/html\n\n", "\n--b2\n", "=?utf-8?q?", "<x@y> ", "\n"),
    "\n--b1\nContent-Type: multipart/mixed; boundary=b2\n\n--b2\n",
]
_HEADS = [
    "Content-Type: text/html\n\n",
    "Content-Type: multipart/mixed; boundary=b1\n\n--b1\nContent-Type: text/html\n\n",
    "Content-Type: text/html\nContent-Transfer-Encoding: quoted-printable\n\n",
    "References: ",
    "Subject: ",
    "Content-Type: a; b=",
]
_PIECES = st.tuples(st.sampled_from(_FRAGMENTS), st.sampled_from([1, 1, 2, 3, 100, 1000]))


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(_HEADS), st.lists(_PIECES, max_size=12))
def test_any_mail_costs_what_its_length_allows(head: str, pieces: list[tuple[str, int]]) -> None:
    body = "".join(fragment * times for fragment, times in pieces)
    mail = f"From: a@b.example\n{head}{body}".encode()
    count = calls(lambda: envelope_from_mail(mail, endpoint="me@b.example", now=NOW))
    assert count <= CALLS_PER_BYTE * len(mail) + ONCE
