"""Five hundred ordinary first mails and texts of chats, in ten languages, without a word of anybody else.

Called by `measure.py`, to count how often the sender loses words to a sign that is none. Out: for each number a mail as
bytes or the text of a chat, and the sender's words. Each of the fifty things that people write comes once a language.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from tests.words.composing import mail
from tests.words.forms import html_line, plain_line

SIZE: Final = 500
_PROGRAMS: Final = (((r"*\1*", r"\1 <\2>"), 76), ((r"\1", r"\1 <\2>"), 0), ((r"\1", r"\1<\2>"), 0))
"""What Gmail, Apple Mail and Outlook make of bold words and links, and where they wrap."""
_ENCODINGS: Final = ("8bit", "quoted-printable", "base64", "8bit")


@dataclass(frozen=True, slots=True)
class First:
    """What somebody wrote: `raw` is the mail, None in a chat. `words` has the subject in the first line."""

    what: str
    language: str
    words: str
    raw: bytes | None = None


@dataclass(frozen=True, slots=True)
class Tongue:
    """Words of one language."""

    code: str
    hello: str
    thanks: str
    bye: str
    name: str
    phone: str
    mail: str
    address: str
    date: str
    time: str
    place: str
    total: str
    order: str
    invoice: str
    topic: str
    head: tuple[str, str, str, str]
    """From, date, to, subject: as in a mail's head."""
    on: str
    """Begins a sentence with a date."""
    days: tuple[str, str, str]
    long_day: str
    noted: str
    please: str
    bring: str
    late: str
    hall: str
    said: str
    """"wrote", as in a sentence about oneself."""


TONGUES: Final = (
    Tongue(
        "en",
        "Hello,",
        "Thank you very much",
        "Best wishes",
        "Name",
        "Phone",
        "E-mail",
        "Address",
        "Date",
        "Time",
        "Place",
        "Total",
        "Order",
        "Invoice",
        "Topic",
        ("From", "Date", "To", "Subject"),
        "On 12 March",
        ("3 December 2026", "Friday 4 December", "12/03/2026"),
        "Saturday, 5 December 2026",
        "Notes of our meeting",
        "Please book two seats by the window for us, and tell me what they cost.",
        "bring the tickets and your passport",
        "The train was late again, so I missed the bus and walked home.",
        "town hall",
        "I wrote this on Monday",
    ),
    Tongue(
        "de",
        "Guten Tag,",
        "Vielen Dank",
        "Viele Grüße",
        "Name",
        "Telefon",
        "E-Mail",
        "Anschrift",
        "Datum",
        "Uhrzeit",
        "Ort",
        "Summe",
        "Bestellung",
        "Rechnung",
        "Thema",
        ("Von", "Datum", "An", "Betreff"),
        "Am 12. März",
        ("3. Dezember 2026", "Freitag, 4. Dezember", "12.03.2026"),
        "Samstag, 5. Dezember 2026",
        "Notizen unserer Sitzung",
        "Bitte buche zwei Plätze am Fenster für uns und sag mir, was sie kosten.",
        "die Karten und den Pass mitbringen",
        "Der Zug war wieder zu spät, deshalb habe ich den Bus verpasst.",
        "Rathaus",
        "Das schrieb ich am Montag",
    ),
    Tongue(
        "fr",
        "Bonjour,",
        "Merci beaucoup",
        "Bien à vous",
        "Nom",
        "Téléphone",
        "Courriel",
        "Adresse",
        "Date",
        "Heure",
        "Lieu",
        "Total",
        "Commande",
        "Facture",
        "Sujet",
        ("De", "Date", "À", "Objet"),
        "Le 12 mars",
        ("3 décembre 2026", "vendredi 4 décembre", "12/03/2026"),
        "samedi 5 décembre 2026",
        "Notes de notre réunion",
        "Réservez deux places près de la fenêtre et dites-moi combien elles coûtent.",
        "apporter les billets et le passeport",
        "Le train était encore en retard et j'ai manqué le bus.",
        "mairie",
        "J'ai écrit cela lundi",
    ),
    Tongue(
        "es",
        "Buenos días:",
        "Muchas gracias",
        "Un saludo",
        "Nombre",
        "Teléfono",
        "Correo",
        "Dirección",
        "Fecha",
        "Hora",
        "Lugar",
        "Total",
        "Pedido",
        "Factura",
        "Tema",
        ("De", "Fecha", "Para", "Asunto"),
        "El 12 de marzo",
        ("3 de diciembre de 2026", "viernes 4 de diciembre", "12/03/2026"),
        "sábado, 5 de diciembre de 2026",
        "Notas de la reunión",
        "Reserva dos asientos junto a la ventana y dime cuánto cuestan.",
        "traer las entradas y el pasaporte",
        "El tren llegó tarde otra vez y perdí el autobús.",
        "ayuntamiento",
        "Lo escribí el lunes",
    ),
    Tongue(
        "it",
        "Buongiorno,",
        "Grazie mille",
        "Cordiali saluti",
        "Nome",
        "Telefono",
        "Posta",
        "Indirizzo",
        "Data",
        "Ora",
        "Luogo",
        "Totale",
        "Ordine",
        "Fattura",
        "Tema",
        ("Da", "Data", "A", "Oggetto"),
        "Il 12 marzo",
        ("3 dicembre 2026", "venerdì 4 dicembre", "12/03/2026"),
        "sabato 5 dicembre 2026",
        "Appunti della riunione",
        "Prenota due posti vicino al finestrino e dimmi quanto costano.",
        "portare i biglietti e il passaporto",
        "Il treno era di nuovo in ritardo e ho perso l'autobus.",
        "municipio",
        "L'ho scritto lunedì",
    ),
    Tongue(
        "nl",
        "Beste,",
        "Hartelijk dank",
        "Groeten",
        "Naam",
        "Telefoon",
        "E-mail",
        "Adres",
        "Datum",
        "Tijd",
        "Plaats",
        "Totaal",
        "Bestelling",
        "Factuur",
        "Onderwerp",
        ("Van", "Datum", "Aan", "Onderwerp"),
        "Op 12 maart",
        ("3 december 2026", "vrijdag 4 december", "12-03-2026"),
        "zaterdag 5 december 2026",
        "Notities van ons overleg",
        "Boek twee plaatsen bij het raam voor ons en zeg me wat ze kosten.",
        "de kaartjes en het paspoort meenemen",
        "De trein was weer te laat en ik miste de bus.",
        "stadhuis",
        "Dat schreef ik maandag",
    ),
    Tongue(
        "sv",
        "Hej!",
        "Tack så mycket",
        "Hälsningar",
        "Namn",
        "Telefon",
        "E-post",
        "Adress",
        "Datum",
        "Tid",
        "Plats",
        "Summa",
        "Beställning",
        "Faktura",
        "Ämne",
        ("Från", "Datum", "Till", "Ämne"),
        "Den 12 mars",
        ("3 december 2026", "fredag 4 december", "2026-03-12"),
        "lördag 5 december 2026",
        "Anteckningar från mötet",
        "Boka två platser vid fönstret åt oss och säg vad de kostar.",
        "ta med biljetterna och passet",
        "Tåget var sent igen och jag missade bussen.",
        "stadshuset",
        "Det skrev jag i måndags",
    ),
    Tongue(
        "pl",
        "Dzień dobry,",
        "Dziękuję bardzo",
        "Pozdrawiam",
        "Nazwisko",
        "Telefon",
        "E-mail",
        "Adres",
        "Data",
        "Godzina",
        "Miejsce",
        "Razem",
        "Zamówienie",
        "Faktura",
        "Temat",
        ("Od", "Data", "Do", "Temat"),
        "W dniu 12 marca",
        ("3 grudnia 2026", "piątek, 4 grudnia", "12.03.2026"),
        "sobota, 5 grudnia 2026",
        "Notatki ze spotkania",
        "Proszę zarezerwować dwa miejsca przy oknie i napisać, ile kosztują.",
        "zabrać bilety i paszport",
        "Pociąg znowu się spóźnił i nie zdążyłam na autobus.",
        "ratusz",
        "Napisałam to w poniedziałek",
    ),
    Tongue(
        "ru",
        "Здравствуйте!",
        "Большое спасибо",
        "С уважением",
        "Имя",
        "Телефон",
        "Почта",
        "Адрес",
        "Дата",
        "Время",
        "Место",
        "Итого",
        "Заказ",
        "Счёт",
        "Предмет",
        ("От", "Дата", "Кому", "Тема"),
        "12 марта",
        ("3 декабря 2026 г.", "пятница, 4 декабря", "12.03.2026"),
        "суббота, 5 декабря 2026 г.",
        "Заметки с нашей встречи",
        "Забронируйте два места у окна и скажите, сколько они стоят.",
        "взять билеты и паспорт",
        "Поезд снова опоздал, и я не успела на автобус.",
        "ратуша",
        "Я написала это в понедельник",
    ),
    Tongue(
        "ja",
        "こんにちは。",
        "ありがとうございます",
        "よろしくお願いします",
        "名前",
        "電話",
        "メール",
        "住所",
        "日付",
        "時間",
        "場所",
        "合計",
        "注文",
        "請求書",
        "議題",
        ("差出人", "日付", "宛先", "件名"),
        "3月12日",
        ("2026年12月3日", "12月4日(金)", "2026/03/12"),
        "2026年12月5日(土)",
        "会議のメモ",
        "窓側の席を二つ予約して、値段を教えてください。",
        "切符とパスポートを持って来てください",
        "電車がまた遅れて、バスに乗れませんでした。",
        "市役所",
        "月曜日に書きました",
    ),
)
"""Ten languages."""

Text = Callable[[Tongue, random.Random], tuple[str, str]]
"""The subject, empty in chats, and the text."""


def first_mails() -> Iterator[First]:
    """Five hundred, the same each time."""
    for number in range(SIZE):
        tongue = TONGUES[number % len(TONGUES)]
        what, text = _WRITTEN[number // len(TONGUES)]
        subject, said = text(tongue, random.Random(number))
        if not subject:
            yield First(what, tongue.code, plain_line(said, _PROGRAMS[1][0], 0))
            continue
        how, width = _PROGRAMS[number % len(_PROGRAMS)]
        plain = "\n".join(plain_line(line, how, width) for line in said.split("\n"))
        html = _html(said) if random.Random(SIZE + number).random() < 0.5 else None
        raw = mail(subject, plain=plain + "\n", html=html, encoding=_ENCODINGS[number % 4])
        yield First(what, tongue.code, f"{subject}\n{plain}", raw)


def _html(text: str) -> str:
    lines = (f"<div>{html_line(line) or '<br>'}</div>" for line in text.split("\n"))
    return f"<html><body>{''.join(lines)}</body></html>"


def _person(random_: random.Random) -> tuple[str, str]:
    name = random_.choice(("Bo Larsen", "Mia Novak", "Lee Chan", "Eva Roth", "Tom Ford"))
    return name, f"{name.split()[0].lower()}@company.example"


def _phone(random_: random.Random) -> str:
    return f"+49 30 555 {random_.randrange(1000, 9999)}"


def _letter(one: Tongue, *lines: str) -> str:
    return "\n".join((one.hello, "", *lines, "", f"{one.thanks}!", one.bye, "Ann"))


def _request(one: Tongue, _: random.Random) -> tuple[str, str]:
    return one.topic, _letter(one, one.please)


def _story(one: Tongue, _: random.Random) -> tuple[str, str]:
    return one.place, _letter(one, one.late, "", one.please)


def _facts(one: Tongue, random_: random.Random) -> tuple[str, str]:
    name, address = _person(random_)
    facts = (
        f"{one.name}: {name}",
        f"{one.phone}: {_phone(random_)}",
        f"{one.mail}: {address}",
        f"{one.date}: {one.days[0]}",
    )
    return one.order, _letter(one, one.please, "", *facts)


def _facts_with_bullets(one: Tongue, random_: random.Random) -> tuple[str, str]:
    name, address = _person(random_)
    facts = (f"- {one.name}: {name}", f"- {one.mail}: {address}", f"- {one.date}: {one.days[0]}, 10:30")
    return one.order, _letter(one, one.please, "", *facts)


def _trip(one: Tongue, random_: random.Random) -> tuple[str, str]:
    """Hardly anybody writes a date and a subject into it; with all four words it is a head by the laws."""
    said = [f"{one.head[0]}: Berlin", f"{one.head[2]}: Basel"]
    if random_.random() < 0.2:
        said = [said[0], f"{one.head[1]}: {one.days[0]}", said[1], f"{one.head[3]}: 2 + 1"]
    return one.order, _letter(one, one.please, "", *said, "", one.late)


def _appointment(one: Tongue, random_: random.Random) -> tuple[str, str]:
    """For some with an address and a time: then the list has all of a head."""
    name, address = _person(random_)
    said = [f"{one.topic}: {one.please}", f"{one.date}: {one.days[0]}, 10:30", f"{one.place}: {one.hall}"]
    if random_.random() < 0.25:
        said.append(f"{one.mail}: {address}")
    return one.topic, _letter(one, *said, f"{one.name}: {name}")


def _agenda(one: Tongue, _: random.Random) -> tuple[str, str]:
    said = (f"{one.on}: {one.late}", f"{one.days[1]}: {one.bring}", f"{one.long_day}: {one.hall}")
    return one.topic, _letter(one, *said)


def _agenda_below_days(one: Tongue, _: random.Random) -> tuple[str, str]:
    said = (
        f"{one.days[1]}:",
        f"- 10:00 {one.hall}",
        f"- 12:30 {one.bring}",
        "",
        f"{one.long_day}:",
        f"- 9:15 {one.late}",
    )
    return one.topic, _letter(one, *said)


def _agenda_below_places(one: Tongue, _: random.Random) -> tuple[str, str]:
    said = (f"{one.days[1]}, {one.hall}:", f"- 10:00 {one.topic}", f"- 12:30 {one.bring}")
    return one.topic, _letter(one, *said)


def _notes(one: Tongue, random_: random.Random) -> tuple[str, str]:
    name, _ = _person(random_)
    said = (f"{one.noted}, {one.long_day}", "", f"1. {name}: {one.bring}", f"2. Ann: {one.late}", f"3. {one.please}")
    return one.noted, _letter(one, *said)


def _notes_with_speakers(one: Tongue, random_: random.Random) -> tuple[str, str]:
    name, _ = _person(random_)
    said = (f"{one.noted}:", "", f"{name}: {one.late}", f"Ann: {one.bring}", f"{name}: {one.please}")
    return one.noted, _letter(one, *said)


def _invoice(one: Tongue, random_: random.Random) -> tuple[str, str]:
    number = random_.randrange(1000, 9999)
    said = (
        f"{one.invoice}: {number}",
        f"{one.date}: {one.days[2]}",
        f"{one.total}: 45,00 EUR",
        "IBAN: DE89 3704 0044 0532 0130 00",
    )
    return f"{one.invoice} {number}", _letter(one, *said, "", one.please)


def _order(one: Tongue, random_: random.Random) -> tuple[str, str]:
    number = random_.randrange(10_000, 99_999)
    said = (
        f"{one.order}: #{number}",
        f"{one.date}: {one.days[2]} 10:42",
        "",
        "2 x 12,50",
        "1 x 7,00",
        f"{one.total}: 32,00",
    )
    return f"{one.order} {number}", _letter(one, *said)


def _invitation(one: Tongue, _: random.Random) -> tuple[str, str]:
    said = (one.please, "", f"{one.date}: {one.long_day}", f"{one.time}: 19:00", f"{one.place}: {one.hall}")
    return one.long_day, _letter(one, *said, "", one.bring)


def _signature(one: Tongue, random_: random.Random) -> tuple[str, str]:
    name, address = _person(random_)
    below = (
        "-- ",
        name,
        "Company Ltd.",
        f"{one.phone}: {_phone(random_)}",
        f"{one.mail}: {address}",
        "www.company.example",
    )
    return one.topic, "\n".join((one.hello, "", one.please, "", one.bye, *below))


def _signature_of_dashes(one: Tongue, random_: random.Random) -> tuple[str, str]:
    name, address = _person(random_)
    below = ("______________________", name, f"T {_phone(random_)} | M {_phone(random_)}", f"<{address}>")
    return one.topic, "\n".join((one.hello, "", one.late, "", one.bye, "", *below))


def _address(one: Tongue, random_: random.Random) -> tuple[str, str]:
    name, address = _person(random_)
    said = (f"{one.address}:", name, "Gartenstr. 5", "12345 Berlin", _phone(random_), address)
    return one.address, _letter(one, one.please, "", *said)


def _log(one: Tongue, random_: random.Random) -> tuple[str, str]:
    whom = random_.choice(("bob@x.example:", "the server:", "the server", "the server.", "the server, errno 111"))
    said = (
        "2026-11-27 16:00:01,120 INFO  worker: started",
        f"2026-11-27 16:00:02,007 ERROR mail: cannot reach {whom}",
        "Traceback (most recent call last):",
        '  File "main.py", line 3, in <module>',
        "ConnectionError: [Errno 111] Connection refused",
        "Nov 27 16:00:03 host postfix/smtp[311]: 4D2: to=<bob@x.example>, status=deferred",
    )
    return one.topic, _letter(one, one.late, "", *said)


def _diff(one: Tongue, _: random.Random) -> tuple[str, str]:
    said = (
        "diff --git a/a.py b/a.py",
        "--- a/a.py",
        "+++ b/a.py",
        "@@ -1,3 +1,3 @@",
        " import os",
        "-x = 1",
        "+x = 2",
        "--- ",
    )
    return "diff", _letter(one, one.please, "", *said)


def _code(one: Tongue, _: random.Random) -> tuple[str, str]:
    said = (
        "if a > b:",
        "    print(a)",
        "else:",
        "    print(b)",
        "",
        "{",
        '  "from": "x@y.example",',
        '  "date": "2026-11-27"',
        "}",
    )
    return "code", _letter(one, one.please, "", *said)


def _pasted_head(one: Tongue, random_: random.Random) -> tuple[str, str]:
    """For half of them: a head from the sender's own mailbox; else only its number."""
    number = "Message-ID: <20261127@company.example>"
    if random_.random() < 0.5:
        return one.topic, _letter(one, one.please, "", number)
    values = ("Ann Example <ann@people.example>", "Fri, 27 Nov 2026 16:00:00 +0100", "me@example.org", one.topic)
    head = (f"{word}: {value}" for word, value in zip(one.head, values, strict=True))
    return one.topic, _letter(one, one.late, "", *head, number)


def _own_words_about_writing(one: Tongue, _: random.Random) -> tuple[str, str]:
    return one.topic, _letter(one, f"{one.said}: {one.late}", "", f"{one.on}, {one.hall}, {one.bring}.")


def _questions(one: Tongue, _: random.Random) -> tuple[str, str]:
    return one.topic, _letter(one, "1) " + one.please, "2) " + one.bring, "3) " + one.late)


def _table(one: Tongue, random_: random.Random) -> tuple[str, str]:
    rows = (f"| {one.days[2]} | {random_.randrange(9, 18)}:00 | {one.hall} |" for _ in range(3))
    return one.topic, _letter(one, f"| {one.date} | {one.time} | {one.place} |", "|---|---|---|", *rows)


def _rules(one: Tongue, _: random.Random) -> tuple[str, str]:
    return one.topic, _letter(
        one, f"----- {one.topic} -----", one.late, "", f"===== {one.place} =====", one.please, "#####"
    )


def _formatted(one: Tongue, random_: random.Random) -> tuple[str, str]:
    name, _ = _person(random_)
    said = (
        f"**{one.please}**",
        "",
        f"- [{one.hall}](https://maps.example/x?a=1&b=2)",
        f"- {one.bring}",
        "",
        f"**{name}**",
    )
    return one.noted, _letter(one, *said, "", f"{one.late} [{one.place}](https://photos.example/p/123)")


def _short(one: Tongue, _: random.Random) -> tuple[str, str]:
    return one.bring, one.thanks


def _phone_signature(one: Tongue, _: random.Random) -> tuple[str, str]:
    return one.topic, f"{one.please}\n\nSent from my iPhone"


def _contacts(one: Tongue, random_: random.Random) -> tuple[str, str]:
    said = [f"{name} <{address}>" for name, address in (_person(random_) for _ in range(3))]
    return one.name, _letter(one, one.please, "", *said)


def _deadline(one: Tongue, random_: random.Random) -> tuple[str, str]:
    """For some, a line with a date and an address that ends in a colon: an attribution by the laws."""
    name, address = _person(random_)
    if random_.random() < 0.2:
        return one.topic, _letter(one, f"{one.on}, 16:00, {name} <{address}>:", f"- {one.bring}", f"- {one.late}")
    return one.topic, _letter(one, f"{one.long_day}, 16:00 – {name} – {one.bring}", one.late)


def _chat(said: Callable[[Tongue, random.Random], str]) -> Text:
    return lambda one, random_: ("", said(one, random_))


def _chat_note(one: Tongue, random_: random.Random) -> str:
    name, address = _person(random_)
    return f"{one.name}: {name}\n{one.mail}: {address}\n{one.date}: {one.days[0]} 10:00"


def _chat_head(one: Tongue, random_: random.Random) -> str:
    return _pasted_head(one, random_)[1]


_WRITTEN: Final[tuple[tuple[str, Text], ...]] = (
    ("request", _request),
    ("story", _story),
    ("list of facts", _facts),
    ("list with bullets", _facts_with_bullets),
    ("trip", _trip),
    ("appointment", _appointment),
    ("agenda", _agenda),
    ("agenda below days", _agenda_below_days),
    ("agenda below places", _agenda_below_places),
    ("notes", _notes),
    ("notes with speakers", _notes_with_speakers),
    ("invoice", _invoice),
    ("order", _order),
    ("invitation", _invitation),
    ("signature", _signature),
    ("signature below a rule", _signature_of_dashes),
    ("address", _address),
    ("log", _log),
    ("diff", _diff),
    ("code", _code),
    ("pasted head", _pasted_head),
    ("own words about writing", _own_words_about_writing),
    ("questions", _questions),
    ("table", _table),
    ("rules", _rules),
    ("short", _short),
    ("signature of a phone", _phone_signature),
    ("contacts", _contacts),
    ("deadline", _deadline),
    ("formatted", _formatted),
    ("invoice again", _invoice),
    ("order again", _order),
    ("invitation again", _invitation),
    ("signature again", _signature),
    ("formatted again", _formatted),
    ("chat: request", _chat(lambda one, _: one.please)),
    ("chat: story", _chat(lambda one, _: one.late)),
    ("chat: thanks", _chat(lambda one, _: one.thanks)),
    ("chat: list", _chat(_chat_note)),
    ("chat: pasted head", _chat(_chat_head)),
    ("chat: agenda", _chat(lambda one, random_: _agenda_below_days(one, random_)[1])),
    ("chat: code", _chat(lambda one, random_: _code(one, random_)[1])),
    ("chat: diff", _chat(lambda one, random_: _diff(one, random_)[1])),
    ("chat: log", _chat(lambda one, random_: _log(one, random_)[1])),
    ("chat: comparison", _chat(lambda one, _: f"{one.total} > 100? {one.bring} -> {one.hall}")),
    ("chat: date", _chat(lambda one, _: f"{one.on}: {one.hall}")),
    ("chat: notes", _chat(lambda one, random_: _notes_with_speakers(one, random_)[1])),
    ("chat: contacts", _chat(lambda one, random_: _contacts(one, random_)[1])),
    ("chat: arrow", _chat(lambda one, _: f"{one.date} --> {one.days[0]}\n<- {one.hall}")),
    ("chat: letter", _chat(lambda one, random_: _story(one, random_)[1])),
)
