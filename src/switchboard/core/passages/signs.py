"""The shapes by which mail programs show that words of others follow, in one table for all languages. Pure.

Called by `plain.py` and `promotion.py`. In: lines of text; out: how many lines say whose words follow, and of which
kind these are. No list of phrases is complete, so most signs are shapes: a date and an author before a colon, or fields
below each other of which one has an address and one a date. Linear time, because a stranger wrote the lines. Next:
`plain.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import takewhile
from typing import Final

from msgspec import Struct, structs

from switchboard.ports.chat import QUOTE_MARKS, UNSEEN

_MAX_LINE: Final = 400
_ATTRIBUTION_LINES: Final = 3
_LONG_ATTRIBUTION_LINES: Final = 6
_HEAD_LINES: Final = 8
_LEAST_FIELDS: Final = 3
_MAX_SEPARATOR: Final = 80

_BLANKS: Final = {0xA0: " ", 0x202F: " "}
_WORD = r"[^\W\d_]"

# Dates ----------------------------------------------------------------------------------------------------------------

_MONTHS: Final = """
    jan feb fév mar mär mår mrt apr abr avr ápr may mai maj mei máj mag jun juin jui giu jul lug aug ago aoû
    sep set okt oct out ott nov dec dez déc dic des tammi helmi maalis huhti touko kesä heinä elo syys loka
    marras joulu sty lut kwi cze lip sie wrz paź lis gru led úno bře dub kvě čvn čvc červ srp zář říj pro янв
    фев мар апр мая май июн июл авг сен окт ноя дек oca şub nis haz tem ağu eyl eki kas ara ene gen
"""
_MONTH: Final = f"(?:{'|'.join(_MONTHS.split())})"
"""How the names of months begin, in some twenty languages."""
_MONTH_WORD: Final = rf"{_WORD}[^\s\d.,:;<>()@]{{2,19}}"
"""Any word: letters may be followed by marks that are none."""
_DATES = (
    re.compile(r"\d{4}\s?[./年년-]\s?\d{1,2}\s?[./月월-]\s?\d{1,2}"),
    re.compile(r"(?<!\d)\d{1,2}\s?[./-]\s?\d{1,2}\s?[./-]\s?\d{2,4}(?!\d)"),
    re.compile(r"\d{1,2}\s?[月월]\s?\d{1,2}\s?[日일]"),
    re.compile(rf"(?<!\d)\d{{1,2}}(?:st|nd|rd|th|\.|º|er)?,?\s(?:de\s)?{_MONTH_WORD}\.?,?\s(?:de\s)?\d{{4}}(?!\d)"),
    re.compile(rf"{_MONTH_WORD}\.?\s\d{{1,2}}(?:st|nd|rd|th|\.)?,?\s\d{{4}}(?!\d)"),
    re.compile(rf"(?<!\d)\d{{1,2}}(?:st|nd|rd|th|\.|º|er)?\s(?:de\s)?{_MONTH}", re.IGNORECASE),
    re.compile(rf"(?<!\w){_MONTH}{_WORD}{{0,10}}\.?\s\d{{1,2}}(?!\d)", re.IGNORECASE),
)
_DIGIT = re.compile(r"\d")
_TIME = re.compile(r"(?<!\d)\d{1,2}\s?[:.h時时시]\s?\d{2}(?!\d)|\d{1,2}\s?(?:am|pm)(?!\w)", re.IGNORECASE)
_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")
_IN_ANGLES = re.compile(r"<[^\s<>]{1,200}@[^\s<>]{1,200}>")
_ADDRESS = re.compile(r"[^\s<>()\[\]\",;:]{1,100}@[^\s<>()\[\]\",;:]{1,100}")

# Attributions ---------------------------------------------------------------------------------------------------------

_VERBS: Final = (
    *("wrote", "writes", "schrieb", "schreibt", "écrit", "escribió", "escribe", "ha scritto", "scrive", "schreef"),
    *("schrijft", "escreveu", "escreve", "skrev", "skriver", r"napisał(?:\(a\)|a)?", "pisze", r"napsal(?:\(a\)|a)?"),
    *("napísal", "kirjoitti", "kirjutas", "írta", "scris", "rakstīja", "rašė", "napisao", "έγραψε", "пишет"),
    *(r"писал(?:\(а\)|а)?", r"написал(?:\(а\)|а)?", "написа", "пише", "yazdı", "menulis", "đã viết"),
)
_WROTE = re.compile(
    rf"\b(?:{'|'.join(_VERBS)})|写道|寫道|写到|書きました|のメール|작성|썼습니다|כתב|كتب", re.IGNORECASE
)
"""How programs say that somebody wrote what follows."""
_ENDS = (":", "：")
_CAPITALISED = re.compile(rf"\s[^\W\d_a-z][^\W\d_A-Z]{_WORD}{{0,40}}(?!\s?\.?,?\s?\d)")
_LOGGED = re.compile(r"[\[(]?\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}[.,]\d{3}")
"""How a line of a log begins."""

# Heads of fields ------------------------------------------------------------------------------------------------------

_NAME: Final = r"[^\s:：*<>/()]"
_FIELD = re.compile(
    rf"\*{{0,2}}({_WORD}{_NAME}{{0,24}}(?: {_NAME}{{1,24}}){{0,3}})\s?\*{{0,2}}\s?[:：]\*{{0,2}}\s?((?!//).*)"
)


def _assign_role(role: str, words: str) -> dict[str, str]:
    return dict.fromkeys(words.split(), role)


_ROLES: Final[dict[str, str]] = {
    **_assign_role(
        "from",
        """
        from von de da van från fra od от откого lähettäjä 差出人 送信者 发件人 寄件者 寄件人 kimden gönderen
        expéditeur remitente mittente afsender avsender avsändare nadawca отправитель odesílatel
        odosielateľ feladó absender afzender από מאת من 보낸사람 จาก प्रेषक saatja від dari từ
        """,
    ),
    **_assign_role(
        "date",
        """
        sent date gesendet datum envoyé enviado enviada enviadoel enviadaem enviadoem inviato data
        verzonden skickat sendt wysłano отправлено дата когда lähetetty päiväys päivämäärä pvm odesláno
        odoslané 送信日時 送信時刻 日付 日時 发送时间 发送日期 时间 日期 寄件日期 傳送日期
        tarih gönderilme gönderildi gönderimtarihi
        fecha dato daté elküldve dátum ημερομηνία נשלח תאריך تاريخ 보낸날짜 날짜 time saadetud надіслано dikirim
        ส่ง วันที่ दिनांक
        """,
    ),
    **_assign_role(
        "to",
        """
        to an à a para aan till til do кому vastaanottaja komu příjemce 宛先 收件人 收件者 kime alıcı per
        destinatario destinataire címzett προς אל إلى 받는사람 ถึง प्रति cc kopie kopia kopi копия kopio 抄送 副本
        empfänger geadresseerde
        """,
    ),
    **_assign_role(
        "subject",
        """
        subject betreff sujet objet asunto oggetto onderwerp ämne emne assunto temat тема aihe předmět predmet
        件名 主题 主旨 主題 konu 제목 เรื่อง विषय tárgy θέμα נושא الموضوع teema subjekt subiect
        """,
    ),
}
"""What the fields above an original are called, without blanks and hyphens, and what they hold."""

# Separators -----------------------------------------------------------------------------------------------------------

_LEAST_DASHES: Final = 2
_DASHES: Final = "-_=*~#<>‐‑‒–—―─ー"
_ORIGINAL: Final = (
    *(
        "original",
        "ursprüngliche",
        "d'origine",
        "originale",
        "origineel",
        "oorspronkelijk",
        "oprindelig",
        "opprinnelig",
    ),
    *("ursprungligt", "oryginaln", "wiadomość", "исходное", "оригинальное", "původní", "alkuperäinen", "orijinal"),
    *("özgün", "eredeti", "原始邮件", "邮件原件", "原始郵件", "原邮件", "元のメッセージ", "原信", "원본"),
)
_FORWARD: Final = (
    *("forwarded", "weitergeleitet", "transféré", "transmis", "reenviad", "rinviato", "inoltrat", "doorgestuurd"),
    *("doorgezonden", "encaminhad", "vidarebefordrat", "videresendt", "przekazan", "przesłan", "пересылаем"),
    *("пересланн", "перенаправлен", "přeposlan", "välitet", "välitt", "edelleen", "iletilen", "továbbított", "转发"),
    *(
        "轉寄",
        "転送",
        "전달",
        "réexpédié",
        "przekazywan",
        "переадресованн",
        "přeposílan",
        "ileti başlangıcı",
        "letilmiş",
    ),
)
_UNTIL_DASHES = re.compile(rf"([^{re.escape(_DASHES)}\n][^\n]{{1,200}}?)[{re.escape(_DASHES)}]{{2,}}")
_ORIGINALS = re.compile("|".join(_ORIGINAL), re.IGNORECASE)
_FORWARDS = re.compile("|".join(_FORWARD), re.IGNORECASE)
_BEGIN: Final = (
    *("begin", "anfang", "début", "inicio", "início", "inizio", "start", "börjar", "början", "początek", "начало"),
    *("začátek", "alku", "以下", "下面", "------"),
)
_RULE = re.compile(r"[_\u2500\u2014-]{5,200}")

# Subjects -------------------------------------------------------------------------------------------------------------

_TAG: Final = r"\s*(?:\[[^\]\n]{0,40}\]\s*)?"
_FORWARDED: Final = (
    *("fwd?", "wg", "tr", "rv", "enc", "i", "vb", "vs", "vl", "vlä", "doorst", "fs", "pd", "ilt", "i̇lt", "továbbít"),
    *("转发", "轉寄", "転送", "пересл", "пересылаю"),
)
_REPLIED: Final = (
    *(
        "re",
        "aw",
        "sv",
        "antw",
        "antwort",
        "res",
        "odp",
        "odpověď",
        "r",
        "ref",
        "rif",
        "vs",
        "ynt",
        "yanıt",
        "vá",
        "bls",
    ),
    *("回复", "答复", "回覆", "返信", "на", "отв", "ответ"),
)
FORWARD_PREFIX = re.compile(rf"{_TAG}(?:{'|'.join(_FORWARDED)})\s?[:：]", re.IGNORECASE)
"""How the subject of a forwarded mail begins."""
REPLY_PREFIX = re.compile(rf"{_TAG}(?:{'|'.join(_REPLIED)})\s?(?:[\[(^]\d{{1,3}}[\])]?)?\s?[:：]", re.IGNORECASE)
"""How the subject of a reply begins."""


class Sign(Struct, frozen=True):
    """`lines` lines say whose words follow. `wrote`: an attribution, as of a reply; otherwise a head or a separator.

    `forwards`: it says that a message was forwarded; `addressed`: its fields have an address.
    """

    lines: int
    wrote: bool = False
    forwards: bool = False
    addressed: bool = False
    author: str | None = None


def bare(line: str) -> str:
    """The beginning and the end of a line, without blanks around it and without what nobody sees."""
    line = line if line.isascii() else UNSEEN.sub("", line).translate(_BLANKS)
    return line.strip() if len(line) <= _MAX_LINE else f"{line[: _MAX_LINE // 2]} {line[-_MAX_LINE // 2 :]}".strip()


def is_marked(shown: str) -> bool:
    """Whether a line, as it is shown, begins with the mark of a quotation."""
    return shown.startswith(QUOTE_MARKS)


def sign_at(lines: Sequence[str], at: int) -> Sign | None:
    """What the lines from `at` on say about those that follow; None if they say nothing. `lines` are `bare`."""
    line = lines[at]
    if not line:
        return None
    separates = line[0] in _DASHES or line.endswith(_ENDS)
    return (_find_separator(lines, at) if separates else None) or _find_head(lines, at) or _find_attribution(lines, at)


def _find_separator(lines: Sequence[str], at: int) -> Sign | None:
    """A line such as `-----Original Message-----`, or `Begin forwarded message:`, with the fields below it."""
    line = lines[at]
    words = _within_dashes(line)
    said = words or (line if len(line) < _MAX_SEPARATOR and line.endswith(_ENDS) else "")
    forwards = _FORWARDS.search(said) is not None
    if words or forwards or _RULE.fullmatch(line):
        below = _next_line(lines, at + 1)
        head = _find_head(lines, below) if below < len(lines) else None
        if head is not None:
            return structs.replace(head, lines=below - at + head.lines, forwards=forwards)
    if words and _is_dated_attribution(words):
        return Sign(1, wrote=True, author=_author_in(words))
    if (forwards and (words or line.casefold().startswith(_BEGIN))) or (words and _ORIGINALS.search(words)):
        return Sign(1, forwards=forwards)
    return None


def _within_dashes(line: str) -> str:
    """The words of a line that begins as `--- words ---` does; empty for any other line."""
    rest = line.lstrip(_DASHES)
    found = _UNTIL_DASHES.match(rest) if len(line) - len(rest) >= _LEAST_DASHES else None
    if found is None or (found.end() < len(rest) and not (_FORWARDS.search(found[1]) or _ORIGINALS.search(found[1]))):
        return ""
    return found[1].strip()


def _find_head(lines: Sequence[str], at: int) -> Sign | None:
    """Fields below each other: those that we know, or any three of which one has an address and one a date."""
    first = _read_field(lines[at])
    begins = at == 0 or _read_field(lines[at - 1]) is None
    if first is None or not (first[0] or begins):
        return None  # in a language that we do not know, the field above would be one of the head
    fields, size = list[tuple[str, str]](), 0
    for offset, line in enumerate(lines[at : at + 2 * _HEAD_LINES]):
        if (found := _read_field(line)) is not None:
            fields.append(found)
            size = offset + 1
        elif len(fields) == _HEAD_LINES or offset - size > 1 or not _may_go_on(line, fields):
            break
    if not _are_a_head(fields, begins=begins):
        return None
    author = next((value.strip("* ") for role, value in fields if role == "from"), None)
    return Sign(size, author=author, addressed=any(_ADDRESS.search(value) for _, value in fields))


def _read_field(line: str) -> tuple[str, str] | None:
    """What a field holds, which is empty if we do not know its name, and its value."""
    found = _FIELD.fullmatch(line) if ":" in line or "：" in line else None
    return None if found is None else (_role_of(found[1]), found[2])


def _are_a_head(fields: Sequence[tuple[str, str]], *, begins: bool) -> bool:
    """`begins`: no field stands above."""
    roles = {role for role, _ in fields if role}
    if len(roles) >= _LEAST_FIELDS and fields[0][0]:
        return True
    if len(roles) >= _LEAST_FIELDS:  # those above the ones that we know may be of the text, or another head
        fields, roles = list(takewhile(lambda field: not field[0], fields)), set()
    if len(fields) < _LEAST_FIELDS or not (begins or "from" in roles):
        return False
    if "subject" in roles and not roles & {"from", "to"}:
        return False  # where we know the words, an author would be among them
    addressed = "from" in roles or any(_ADDRESS.search(value) for _, value in fields)
    return addressed and any(_has_date(value) and _TIME.search(value) for _, value in fields)


def _may_go_on(line: str, fields: Sequence[tuple[str, str]]) -> bool:
    """Whether a line may be the rest of a long list of addresses, or a blank one that a program put in between."""
    return _ADDRESS.search(line) is not None if line else any(role for role, _ in fields)


@lru_cache(maxsize=512)
def _role_of(name: str) -> str:
    word = re.sub(r"[\s'’-]+", "", name).lower()
    return _ROLES.get(word, "")


def _find_attribution(lines: Sequence[str], at: int) -> Sign | None:
    """A date and an author, and a colon at the end: up to three lines, or six if the last one ends with the author."""
    for size in range(1, _LONG_ATTRIBUTION_LINES + 1):
        window = lines[at : at + size]
        if len(window) < size or not window[-1]:
            return None
        if is_marked(window[-1]) and not (size > 1 and _is_open(window[-2])):
            return None
        if window[-1].endswith(_ENDS):
            long = size > _ATTRIBUTION_LINES and not (window[-1][:-1].endswith(">") or _WROTE.search(window[-1]))
            return None if long else _sign_of_attribution(window, lines, at + size)
    return None


def _sign_of_attribution(window: Sequence[str], lines: Sequence[str], below: int) -> Sign | None:
    """The sign that these lines are; they are none if it begins further down, as below a line without a blank one."""
    if any(map(_LOGGED.match, window)):
        return None
    said = " ".join(window)
    if _is_dated_attribution(said, alone=len(window) == 1):
        if any(_begins_at(window, n) for n in range(1, len(window))):
            return None
    elif len(window) > 1 or not _is_undated_attribution(said, lines, below):
        return None
    return Sign(len(window), wrote=True, author=_author_in(said))


def _begins_at(window: Sequence[str], n: int) -> bool:
    """Whether the attribution begins below the first of these lines, which is no half of an address."""
    return _is_dated_attribution(" ".join(window[n:]), alone=n == len(window) - 1) and not _is_open(window[n - 1])


def _is_open(line: str) -> bool:
    """Whether an address begins in this line and ends in the next."""
    return line.rfind("<") > line.rfind(">")


def _is_dated_attribution(said: str, *, alone: bool = True) -> bool:
    """Whether it has a date and an author: an address, somebody who wrote; or, in a line alone, a name and the time."""
    if not _has_date(said):
        return False
    by = _WROTE.search(said) or _ADDRESS.search(said)
    return by is not None or bool(alone and _YEAR.search(said) and _TIME.search(said) and _has_name(said))


def _is_undated_attribution(said: str, lines: Sequence[str], below: int) -> bool:
    """Whether somebody with an address wrote; or an author is named directly above lines that are marked as quoted."""
    wrote, address = _WROTE.search(said), _ADDRESS.search(said)
    if wrote and _IN_ANGLES.search(said):
        return True
    at = _next_line(lines, below)
    return bool(wrote or address) and at < len(lines) and is_marked(lines[at])


def _has_date(text: str) -> bool:
    return _DIGIT.search(text) is not None and any(date.search(text) for date in _DATES)


def _has_name(said: str) -> bool:
    """Whether a word other than the first begins with a capital letter and is followed by no number."""
    return _CAPITALISED.search(said) is not None


def _author_in(said: str) -> str | None:
    """The address of the author, if there is one."""
    found = _ADDRESS.search(said)
    return found[0].strip("<>") if found else None


def _next_line(lines: Sequence[str], at: int) -> int:
    """The next line that is not blank, looking at two at most."""
    return next((one for one in range(at, min(at + 3, len(lines))) if lines[one]), len(lines))
