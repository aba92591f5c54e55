"""Character sets, names of files, texts and attachments of mails: a table for each kind."""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.core.channels.registry import CHANNELS
from switchboard.core.mail.charsets import read_text
from switchboard.core.mail.files import attached_to
from switchboard.core.mail.flowed import join_flowed_lines, without_markup
from switchboard.core.mail.mime import read_part
from switchboard.core.mail.parse import envelope_from_mail
from switchboard.core.mail.reading import Reading
from switchboard.core.mail.signed import signed_content
from switchboard.core.mail.texts import MAX_ATTACHED, MAX_MAILS, MailText, texts_of
from switchboard.core.routing.facts import facts
from switchboard.domain.envelope import MAX_TEXT, Envelope
from tests.strategies import NOW

HEAD = "From: Ann <ann@x.example>\nMessage-ID: <1@x.example>\n"


def texts(raw: bytes) -> tuple[MailText, ...]:
    return texts_of(read_part(raw), Reading())


def read(raw: bytes) -> Envelope:
    return envelope_from_mail(raw, endpoint="desk@home.example", now=NOW).envelope


def part(kind: str, text: str = "", **fields: str) -> str:
    more = "".join(f"{name.replace('_', '-')}: {value}\n" for name, value in fields.items())
    return f"Content-Type: {kind}\n{more}\n{text}"


def multipart(kind: str, *parts: str, boundary: str = "b") -> str:
    lines = "".join(f"--{boundary}\n{one}\n" for one in parts)
    return f'Content-Type: multipart/{kind}; boundary="{boundary}"\n\n{lines}--{boundary}--\n'


def mail(body: str) -> bytes:
    return (HEAD + body).encode()


@pytest.mark.parametrize(
    ("label", "words", "codec"),
    [
        ("iso-8859-1", "€ 5 \N{EN DASH} “that\u2019s” ß", "cp1252"),
        ("us-ascii", "café", "utf-8"),
        ('"utf-8 "', "naïve", "utf-8"),
        ("'UTF-8;'", "naïve", "utf-8"),
        ("utf-8*en", "naïve", "utf-8"),
        ("gb2312", "價格 \N{EN DASH} 5€", "gb18030"),
        ("gb_2312-80", "價格", "gbk"),
        ("gb18030", "😀", "gb18030"),
        ("cp936", "價格", "gbk"),
        ("hz-gb-2312", "你好", "hz"),
        ("big5-hkscs", "嘅", "big5hkscs"),
        ("ks_c_5601-1987", "똠방각하", "cp949"),
        ("uhc", "똠방각하", "cp949"),
        ("cp949", "똠방각하", "cp949"),
        ("iso-2022-kr", "안녕", "iso2022_kr"),
        ("shift_jis", "㈱①", "cp932"),
        ("cp932", "㈱①", "cp932"),
        ("iso-2022-jp", "会議は明日", "iso2022_jp"),
        ("tis-620", "สวัสดี…", "cp874"),
        ("iso-8859-9", "şehir €", "cp1254"),
        ("iso-8859-15", "€", "iso8859-15"),
        ("win-1251", "Привет", "cp1251"),
        ("koi8-u", "Їжак", "koi8-u"),
        ("macintosh", "Café \N{EN DASH} “hi”", "mac_roman"),
        ("x-mac-cyrillic", "Привет", "mac_cyrillic"),
        ("x-mac-ce", "žluťoučký", "mac_latin2"),
        ("cp-850", "Grüße", "cp850"),
        ("ibm437", "Grüße", "cp437"),
        ("unicode-1-1-utf-7", "Grüße", "utf-7"),
        ("utf-16", "Grüße", "utf-16"),
        ("utf-16", "Grüße", "utf-16-be"),
        ("utf-16", "Grüße", "utf-16-le"),
        ("utf-8", "Grüße", "utf-8-sig"),
        ("koi8-r", "Grüße", "utf-8-sig"),
        ("hex", "4142", "ascii"),
    ],
)
def test_a_label_means_what_programs_mean_by_it(label: str, words: str, codec: str) -> None:
    found = read_text(words.encode(codec), label)
    assert (found.text, found.guessed) == (words, None)


@pytest.mark.parametrize(
    ("label", "words", "codec", "guessed"),
    [
        ("", "Grüße aus Köln", "cp1252", "windows-1252"),
        ("", "Привет из Москвы", "cp1251", "windows-1251"),
        ("x-unknown", "Привет из Москвы", "koi8-r", "koi8-u"),
        ("x-user-defined", "こんにちは世界", "shift_jis", "shift_jis"),
        ("utf-8", "Schöne Grüße", "cp1252", "windows-1252"),
        ("us-ascii", "こんにちは", "iso-2022-jp", "iso-2022-jp"),
        ("iso-8859-1", "Grüße", "utf-8", "utf-8"),
        ("nonsense", "Grüße", "utf-8", "utf-8"),
    ],
)
def test_what_no_label_explains_is_guessed_and_marked(label: str, words: str, codec: str, guessed: str) -> None:
    found = read_text(words.encode(codec), label)
    assert (found.text, found.guessed) == (words, guessed)
    kept = read(f"{HEAD}Content-Type: text/plain; charset={label}\n\n".encode() + words.encode(codec)).payload
    assert isinstance(kept.raw, dict)
    assert (kept.normalized_text, kept.raw["charset_guessed"]) == (words, guessed)


def test_a_few_wrong_bytes_do_not_make_a_label_wrong() -> None:
    data = "Größe und Güte über alles".encode()
    assert read_text(data + b" \xff", "utf-8") == read_text(data + b" \xef\xbf\xbd", "utf-8")
    assert read_text(data[:-4] + "ß".encode()[:1], "utf-8").guessed is None


def test_html_says_its_character_set_itself() -> None:
    html = '<html><head><meta charset="koi8-r"><p>Да'.encode("koi8-r")
    [one] = texts(HEAD.encode() + b"Content-Type: text/html\n\n" + html)
    assert (one.text, one.guessed) == ("Да", None)


@given(st.binary(max_size=60), st.text(max_size=20) | st.sampled_from(["utf-7", "utf-16", "idna", "iso-2022-jp", "hz"]))
def test_any_bytes_under_any_label_are_text(data: bytes, label: str) -> None:
    found = read_text(data, label)
    assert "\x00" not in found.text
    found.text.encode()


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ('Content-Disposition: attachment; filename="Übersicht März.pdf"', "Übersicht März.pdf"),
        ("Content-Disposition: attachment; filename=Übersicht.pdf", "Übersicht.pdf"),
        ('Content-Type: application/pdf; name="=?utf-8?B?w5xiZXJzaWNodA==?= =?utf-8?B?LnBkZg==?="', "Übersicht.pdf"),
        ("Content-Disposition: attachment; filename*=utf-8''%C3%9Cbersicht.pdf", "Übersicht.pdf"),
        ("Content-Disposition: attachment; filename*0*=utf-8''%C3; filename*1*=%9C.pdf", "Ü.pdf"),
        ("Content-Disposition: attachment; filename*=iso-8859-1''%C3%9Cbersicht.pdf", "Übersicht.pdf"),
        ("Content-Disposition: attachment; filename*=iso-8859-1''%80%20%96.pdf", "€ \N{EN DASH}.pdf"),
        ("Content-Disposition: attachment; filename*=utf-8''%DCbersicht.pdf", "Übersicht.pdf"),
        ("Content-Disposition: attachment; filename*=ks_c_5601-1987''%8Cc.txt", "똠.txt"),
        ("Content-Disposition: attachment; filename*=utf-8''отчёт.pdf", "отчёт.pdf"),
        ('Content-Disposition: attachment; filename="=?gb2312?B?g3LWtQ==?="', "價值"),
        ('Content-Disposition: attachment; filename="a\\"b.pdf"', 'a"b.pdf'),
    ],
)
def test_the_name_of_a_file(fields: str, name: str) -> None:
    [one] = read(mail(multipart("mixed", f"{fields}\n\nx"))).payload.attachments
    assert one.filename == name


def test_a_name_in_bytes_that_nothing_explains_is_guessed_with_all_fields() -> None:
    head = f"{HEAD}Subject: Отчёт за ноябрь\n".encode("cp1251")
    raw = head + 'Content-Disposition: attachment; filename="Отчёт.pdf"\n\nx'.encode("cp1251")
    one = read(raw).payload
    assert one.normalized_text.startswith("Отчёт за ноябрь")
    assert one.attachments[0].filename == "Отчёт.pdf"


def test_a_guess_reads_names_and_never_addresses() -> None:
    words = "Отчёт за ноябрь"
    head = f"From: Жанна <жанна@почта.example>\nSubject: {words}\nMessage-ID: <ж@x.example>\n\n"
    one = read((head + words).encode("cp1251"))
    assert (one.sender.display_name, one.sender.identity) == ("Жанна", "æàííà@ïî÷òà.example")
    assert (one.event.external_event_id, one.payload.normalized_text) == ("<æ@x.example>", f"{words}\n\n{words}")
    subject = "会議は明日です"
    raw = b"From: <a@x.example>\nSubject: " + subject.encode("iso-2022-jp") + b"\n\nx"
    assert read(raw).payload.normalized_text == f"{subject}\n\nx"


PLAIN = part("text/plain", "plain words")
HTML = part("text/html", "<p>rich words</p>")
DEFECT = part("text/plain", "Your mail program does not show HTML.")
BLANK = part("text/plain; charset=utf-8", "\u00a0 \u200b\n")
NAMED = 'attachment; filename="order.txt"'
INNER = "From: Shop <shop@store.example>\nDate: Mon, 1 Jun 2026 09:00:00 +0200\nSubject: Invoice\n\nPlease pay."
ATTACHED = part("message/rfc822", INNER)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (multipart("alternative", PLAIN, HTML), [MailText("plain words", "<p>rich words</p>")]),
        (multipart("alternative", HTML, PLAIN), [MailText("plain words", "<p>rich words</p>")]),
        (multipart("alternative", BLANK, HTML), [MailText("rich words", "<p>rich words</p>", rendered=True)]),
        (multipart("alternative", DEFECT, HTML), [MailText("rich words", "<p>rich words</p>", rendered=True)]),
        (
            multipart("alternative", part("text/plain", "See the HTML"), part("text/html", "<b>See the HTML")),
            [MailText("See the HTML", "<b>See the HTML")],
        ),
        (multipart("alternative", DEFECT, part("text/html", "<img>")), [MailText(DEFECT.partition("\n\n")[2])]),
        (
            multipart("alternative", PLAIN, multipart("related", HTML, part("image/png"), boundary="c")),
            [MailText("plain words", "<p>rich words</p>")],
        ),
        (
            multipart("mixed", PLAIN, part("application/pdf"), HTML),
            [MailText("plain words"), MailText("rich words", "<p>rich words</p>", rendered=True)],
        ),
        (part("text/markdown", "# Title"), [MailText("# Title")]),
        (part("text/enriched", "<bold>Now</bold> or\nnever <<3"), [MailText("Now or never <3")]),
        (multipart("mixed", PLAIN, part("text/markdown", "# Title")), [MailText("plain words")]),
        (part("text/markdown", "# x", Content_Disposition=NAMED), [MailText("# x", forwarded=True)]),
        (part("text/plain", "ten boots", Content_Disposition=NAMED), [MailText("ten boots", forwarded=True)]),
        (part('text/plain; name="a.txt"', "ten boots"), [MailText("ten boots", forwarded=True)]),
        (part("text/plain", "ten", Content_Disposition="attachment"), [MailText("ten", forwarded=True)]),
        (part("text/calendar", "BEGIN:VCALENDAR"), [MailText("BEGIN:VCALENDAR", forwarded=True)]),
        (multipart("mixed", PLAIN, part('text/plain; name="a.txt"', "ten")), [MailText("plain words")]),
        (
            multipart("mixed", BLANK, *[part("text/csv", f"{n}") for n in range(5)]),
            [MailText(f"{n}", forwarded=True) for n in range(MAX_MAILS)],
        ),
        (part("text/x-amp-html", "<p>x"), []),
        (part("application/pdf", "%PDF"), []),
    ],
)
def test_the_texts_of(body: str, expected: Sequence[MailText]) -> None:
    assert list(texts(mail(body))) == list(expected)


def nested(depth: int) -> str:
    inner = ATTACHED
    for n in range(depth):
        inner = part("message/rfc822", f"Subject: {n}\n" + multipart("mixed", PLAIN, inner, boundary=f"n{n}"))
    return inner


SENT = datetime(2026, 6, 1, 7, tzinfo=UTC)
INVOICE = MailText("Invoice\n\nPlease pay.", forwarded=True, author="Shop <shop@store.example>", sent_at=SENT)


def test_attached_mails_are_read_within_limits_and_stay_attachments() -> None:
    assert texts(mail(multipart("mixed", PLAIN, ATTACHED))) == (MailText("plain words"), INVOICE)
    assert texts(mail(multipart("mixed", *[ATTACHED] * 9))) == (INVOICE,) * MAX_MAILS
    assert [one.text for one in texts(mail(multipart("mixed", nested(5))))] == ["4\n\nplain words", "3\n\nplain words"]
    for kind in ("report", "digest"):
        [only] = texts(mail(multipart(kind, PLAIN, ATTACHED)))
        assert (only.text, only.forwarded) == ("plain words", kind == "digest")
    [long] = texts(mail(part("message/rfc822", f"Subject: x\n\n{'y' * 99_999}")))
    assert (len(long.text), long.forwarded) == (MAX_ATTACHED, True)
    many = multipart("mixed", *[part("text/plain", "x")] * 400, boundary="i")
    [own, inner] = texts(mail(multipart("mixed", PLAIN, part("message/rfc822", f"Subject: many\n{many}"))))
    assert (own.text, inner.text.count("x")) == ("plain words", 196)
    one = read(mail(multipart("mixed", PLAIN, part("message/rfc822", "\n" + multipart("mixed", HTML, boundary="c")))))
    assert [file.media_type for file in one.payload.attachments] == ["message/rfc822"]
    assert len(attached_to(mail(multipart("mixed", PLAIN, ATTACHED)))) == 1


ENTITY = b"Content-Type: text/plain; charset=utf-8\r\n\r\nAt nine."


def der(tag: int, *pieces: bytes, length: bool = True) -> bytes:
    data = b"".join(pieces)
    if not length:
        return bytes((tag, 0x80)) + data + b"\0\0"
    size = len(data).to_bytes(4)
    return bytes((tag, 0x84)) + size + data


def wrapped(content: bytes, *, kind: str = "2a864886f70d010702", length: bool = True) -> bytes:
    """`signed-data` with definite or indefinite lengths, in which the content comes in pieces."""
    data = der(4, content) if length else der(0x24, *[der(4, content[n : n + 9]) for n in range(0, len(content), 9)])
    inner = der(0x30, der(6, bytes.fromhex("2a864886f70d010701")), der(0xA0, data, length=length), length=length)
    signed = der(0x30, der(2, b"\1"), der(0x31, der(0x30, b""), length=length), inner, der(0x31, b""), length=length)
    return der(0x30, der(6, bytes.fromhex(kind)), der(0xA0, signed, length=length), length=length)


def smime(data: bytes, name: str = "smime.p7m") -> str:
    fields = {"Content_Transfer_Encoding": "base64", "Content_Disposition": f"attachment; filename={name}"}
    return part("application/pkcs7-mime; smime-type=signed-data", base64.encodebytes(data).decode(), **fields)


@pytest.mark.parametrize("length", [True, False])
def test_a_signed_mail_is_what_its_sender_wrote(length: bool) -> None:
    assert texts(mail(smime(wrapped(ENTITY, length=length)))) == (MailText("At nine."),)


SIGNED = smime(wrapped(ENTITY))
SHOWN_SIGNED = SIGNED.replace("Content-Disposition: attachment; filename=smime.p7m\n", "")
LIST_FOOTER = part("text/plain", "a list")
AT_NINE = MailText("At nine.", forwarded=True)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("List-Id: <x>\n" + multipart("mixed", SHOWN_SIGNED, LIST_FOOTER), [MailText("At nine."), MailText("a list")]),
        (multipart("mixed", SHOWN_SIGNED), [MailText("At nine.")]),
        (multipart("mixed", SHOWN_SIGNED, LIST_FOOTER), [MailText("a list"), AT_NINE]),
        ("List-Id: <x>\n" + multipart("mixed", SIGNED, LIST_FOOTER), [MailText("a list"), AT_NINE]),
        ("List-Id: <x>\n" + multipart("mixed", SHOWN_SIGNED, SHOWN_SIGNED), [AT_NINE, AT_NINE]),
        (multipart("mixed", PLAIN, SIGNED), [MailText("plain words"), AT_NINE]),
        (multipart("mixed", SIGNED), [AT_NINE]),
        (smime(wrapped(smime(wrapped(ENTITY)).encode())), [MailText("At nine.")]),
    ],
)
def test_a_signed_mail_in_a_mail_is_a_file_unless_it_is_all_of_it(body: str, expected: Sequence[MailText]) -> None:
    assert list(texts(mail(body))) == list(expected)


def described(text: str) -> str:
    return part("text/plain", text, Content_Description="Mail message body")


def page(*parts: str) -> str:
    head = "Content-Disposition: attachment"
    return multipart("related", *parts, boundary=f"p{len(parts)}").replace("\n", f"\n{head}\n", 1)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (multipart("mixed", page(PLAIN), PLAIN), [MailText("plain words"), MailText("plain words", forwarded=True)]),
        (page(HTML), [MailText("rich words", forwarded=True)]),
        (page(page(HTML), PLAIN), [MailText("rich words", forwarded=True), MailText("plain words", forwarded=True)]),
        (multipart("mixed", PLAIN, page(ATTACHED)), [MailText("plain words"), INVOICE]),
        (multipart("digest", f"\n{INNER}"), [INVOICE]),
        (
            multipart("mixed", PLAIN, multipart("digest", f"\n{INNER}", f"\n{INNER}", boundary="d"), PLAIN),
            [MailText("plain words"), MailText("plain words"), INVOICE, INVOICE],
        ),
        (
            multipart("digest", *[f"\n{INNER}"] * 4),
            [INVOICE] * MAX_MAILS + [MailText(INNER, forwarded=True)],
        ),
        (multipart("digest", "\nno mail"), [MailText("no mail", forwarded=True)]),
        (multipart("mixed", described("a"), PLAIN), [MailText("a"), MailText("plain words")]),
        (multipart("mixed", PLAIN, described("a")), [MailText("plain words"), MailText("a", forwarded=True)]),
        (multipart("mixed", part("image/png"), described("a")), [MailText("a")]),
        (
            multipart("alternative", DEFECT, part("text/html", "<p>x", Content_Location="a:b")),
            [MailText("x", "<p>x", True)],
        ),
        (
            multipart("mixed", PLAIN, part("message/rfc822", "From: b@x.example\nContent-Type: application/pdf\n\n")),
            [MailText("plain words")],
        ),
    ],
)
def test_what_is_in_files_is_not_the_senders_and_not_lost(body: str, expected: Sequence[MailText]) -> None:
    assert list(texts(mail(body))) == list(expected)
    found = read(mail(body))
    assert len(found.payload.attachments) == len(attached_to(mail(body)))


def test_files_within_files_do_not_displace_what_the_sender_wrote() -> None:
    long = part("text/plain", "y" * (2 * MAX_TEXT))
    found = texts(mail(multipart("mixed", *[page(page(long), long)] * 9, PLAIN)))
    assert found[0] == MailText("plain words")
    assert MAX_TEXT < sum(len(one.text) for one in found[1:]) < MAX_TEXT + 2 * MAX_ATTACHED


@pytest.mark.parametrize(
    "body",
    [
        smime(wrapped(ENTITY), "contract.pdf.p7m"),
        smime(wrapped(b"%PDF-1.7")),
        smime(wrapped(ENTITY, kind="2a864886f70d010703")),
        smime(wrapped(ENTITY)[:40]),
        smime(b"\x30\x80" * 5_000),
        smime(b""),
    ],
)
def test_what_is_no_signed_mail_has_no_text(body: str) -> None:
    assert texts(mail(body)) == ()


@given(st.binary(max_size=80), st.integers(0, 200))
def test_broken_signed_data_is_no_error(noise: bytes, at: int) -> None:
    data = wrapped(ENTITY, length=False)
    signed_content(data[:at] + noise + data[at:])
    signed_content(noise)


@pytest.mark.parametrize(
    ("text", "delsp", "expected"),
    [
        ("one \ntwo\nthree", False, "one two\nthree"),
        ("one  \ntwo", True, "one two"),
        ("ein Wort \nteil", True, "ein Wortteil"),
        ("> said \n> more\n>> deeper \n> back", False, "> said more\n>> deeper \n> back"),
        (" >stuffed\n From", False, ">stuffed\nFrom"),
        ("bye \n-- \nAnn", False, "bye \n-- \nAnn"),
        ("https://a.example/very- \nlong", False, "https://a.example/very-long"),
        ("last \n", False, "last "),
    ],
)
def test_flowed_lines_are_whole_again(text: str, delsp: bool, expected: str) -> None:
    assert join_flowed_lines(text, deletes_space=delsp) == expected


@given(st.text(alphabet="ab> -\n", max_size=60), st.booleans())
def test_no_word_is_lost_with_the_breaks(text: str, delsp: bool) -> None:
    found = join_flowed_lines(text, deletes_space=delsp)
    assert [c for c in found if c in "ab"] == [c for c in text if c in "ab"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a\nb\n\nc", "a b\nc"),
        ("<color><param>red</param>hot</color> <<tag>", "hot <tag>"),
        ("x <lt> y<nl>z", "x < y\nz"),
        ("1 < 2 > 1", "1 < 2 > 1"),
    ],
)
def test_enriched_text_is_its_words(text: str, words: str) -> None:
    assert without_markup(text) == words


FOOTER = "_______________\nList mailing list\nUnsubscribe: https://list.example/\n"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (base64.encodebytes("Grüße!".encode()).decode() + FOOTER, f"Grüße!\n{FOOTER.strip()}"),
        (base64.encodebytes(b"abc").decode() + "\n" + FOOTER, f"abc\n{FOOTER.strip()}"),
        (base64.encodebytes(b"abc").decode() + "List footer\n", "abc\nList footer"),
        ("aGVsb\nG8=!", "hello"),
        ("aGVsb!\nG8=", "hello"),
    ],
)
def test_a_footer_below_base64_is_read(body: str, expected: str) -> None:
    [one] = texts(mail(part("text/plain; charset=utf-8", body, Content_Transfer_Encoding="base64")))
    assert one.text == expected


IMAGE = {"Content_ID": "<logo@x>", "Content_Disposition": "inline; filename=logo.png"}
SHOWN = part("text/html", "<p>hi <img src='cid:logo@x'>")


@pytest.mark.parametrize(
    ("body", "attached", "media"),
    [
        (multipart("signed", PLAIN, part("application/pkcs7-signature; name=smime.p7s")), "no", None),
        (multipart("signed", PLAIN, part("application/octet-stream; name=smime.p7s")), "no", None),
        (multipart("signed", PLAIN, part("application/pgp-signature; name=signature.asc")), "no", None),
        (smime(wrapped(ENTITY)), "no", None),
        (smime(wrapped(ENTITY), "invoice.xml.p7m"), "yes", "document"),
        (multipart("related", SHOWN, part("image/png", "x", **IMAGE)), "no", None),
        (multipart("related", HTML, part("image/png", "x", **IMAGE)), "yes", "photo"),
        (multipart("related", SHOWN, part("application/pdf", "x", **IMAGE)), "yes", "document"),
        (
            multipart("mixed", PLAIN, part("application/pdf; name=a.pdf", "x", Content_ID="cid:logo@x")),
            "yes",
            "document",
        ),
        (
            multipart("related", SHOWN, part("image/png", "x", **IMAGE), part("application/pdf; name=a.pdf")),
            "yes",
            "document",
        ),
        (multipart("alternative", PLAIN, part("text/x-amp-html", "<p>x")), "no", None),
        (part("text/markdown", "# Title"), "no", None),
        (part("text/plain", "ten boots", Content_Disposition=NAMED), "yes", "document"),
        (multipart("mixed", PLAIN, ATTACHED), "yes", "document"),
        (PLAIN, "no", None),
    ],
)
def test_a_file_that_a_person_attached(body: str, attached: str, media: str | None) -> None:
    one = read(mail(body))
    found = facts(one, CHANNELS["email"])
    assert (found["has_attachment"], found.get("media")) == (attached, media)
    assert len(one.payload.attachments) == len(attached_to(mail(body)))


SIZE = 1_000_000
ELEMENTS = bytes.fromhex("308006092a864886f70d010702a080308002010131 80") + b"\x05\x00" * (SIZE // 4)
HOSTILE = {
    "signed data": smime(ELEMENTS),
    "indefinite lengths": smime(b"\x30\x80" * (SIZE // 4)),
    "flowed": part("text/plain; format=flowed; delsp=yes", "https://x- \n" * (SIZE // 12)),
    "one flowed line": part("text/plain; format=flowed", "> " * (SIZE // 2)),
    "markup": part("text/enriched", "<a" * (SIZE // 2)),
    "breaks": part("text/enriched", "\r\n" * (SIZE // 2)),
    "footers": part("text/plain", "aGk!\n" * (SIZE // 5), Content_Transfer_Encoding="base64"),
    "images": multipart("related", part("text/html", "cid:" * (SIZE // 4)), part("image/png", "x", **IMAGE)),
    "escapes": part("text/html", "<style>" + r"\69" * (SIZE // 8) + "</style><p style='" + "\\" * (SIZE // 2) + "'>x"),
    "names": multipart("mixed", *[f"Content-Disposition: attachment; filename={'ü' * 900}\n\nx"] * 190),
    "digest": multipart("digest", *[f"\nFrom: <b@x.example>\n\n{'y ' * (SIZE // 400)}"] * 190),
    "pages": multipart("mixed", *[page(page(part("text/html", "<p>y" * (SIZE // 800)), PLAIN))] * 60),
    "mails": multipart("mixed", *[part("message/rfc822", f"Subject: x\n\n{'y' * (SIZE // 9)}")] * 9),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_megabyte_of_any_kind_takes_linear_time(kind: str) -> None:
    raw = (HEAD + HOSTILE[kind]).encode("latin-1")
    began = time.process_time()
    read(raw)
    assert time.process_time() - began < 5
