"""People of the People API as vCards. Pure.

`contacts.py` calls it for each person that Google lists. In: JSON, and the names of groups; out: the bytes of a card.
Each line says whence it is, if not from the contact that the user keeps: what people say of themselves in their Google
profile is not the user's word. Next: RFC 2426.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, convert, field

from switchboard.core.text.content_lines import escape_text, fold_line
from switchboard.domain.json_values import JsonMapping

PERSON_FIELDS: Final = (
    "addresses,biographies,birthdays,emailAddresses,imClients,memberships,metadata,names,nicknames,organizations,"
    "phoneNumbers,urls"
)
_OWN_SOURCE: Final = "CONTACT"


class PersonSource(Struct, frozen=True, rename="camel"):
    """Whence a person or a field is: `CONTACT`, `PROFILE`, …"""

    type: str = ""
    id: str = ""
    update_time: str = ""


class FieldMetadata(Struct, frozen=True):
    primary: bool = False
    source: PersonSource = PersonSource()


class PersonMetadata(Struct, frozen=True):
    deleted: bool = False
    sources: tuple[PersonSource, ...] = ()


class PersonDate(Struct, frozen=True):
    """The year may be missing."""

    year: int = 0
    month: int = 0
    day: int = 0


class GroupMembership(Struct, frozen=True, rename="camel"):
    contact_group_resource_name: str = ""


class PersonField(Struct, frozen=True, rename="camel"):
    """One name, address, number, … of a person: each kind has some of these."""

    metadata: FieldMetadata = FieldMetadata()
    value: str = ""
    type: str = ""
    canonical_form: str = ""
    display_name: str = ""
    family_name: str = ""
    given_name: str = ""
    middle_name: str = ""
    honorific_prefix: str = ""
    honorific_suffix: str = ""
    po_box: str = ""
    extended_address: str = ""
    street_address: str = ""
    city: str = ""
    region: str = ""
    postal_code: str = ""
    country: str = ""
    formatted_value: str = ""
    name: str = ""
    department: str = ""
    title: str = ""
    username: str = ""
    protocol: str = ""
    date: PersonDate = PersonDate()
    text: str = ""
    contact_group_membership: GroupMembership = GroupMembership()

    @property
    def group(self) -> str:
        """The resource name of the group to which a membership belongs."""
        return self.contact_group_membership.contact_group_resource_name


class GooglePerson(Struct, frozen=True, rename="camel"):
    """A contact. What is not named here stays at Google."""

    resource_name: str
    etag: str = ""
    metadata: PersonMetadata = field(default_factory=PersonMetadata)
    names: tuple[PersonField, ...] = ()
    nicknames: tuple[PersonField, ...] = ()
    email_addresses: tuple[PersonField, ...] = ()
    phone_numbers: tuple[PersonField, ...] = ()
    addresses: tuple[PersonField, ...] = ()
    organizations: tuple[PersonField, ...] = ()
    birthdays: tuple[PersonField, ...] = ()
    biographies: tuple[PersonField, ...] = ()
    im_clients: tuple[PersonField, ...] = ()
    urls: tuple[PersonField, ...] = ()
    memberships: tuple[PersonField, ...] = ()

    @property
    def updated(self) -> str:
        """When its contact was last changed, as Google says it; empty: it does not."""
        return max((one.update_time for one in self.metadata.sources), default="")


def person_of(found: JsonMapping) -> GooglePerson:
    """Raises ValueError for what is none."""
    return convert(found, GooglePerson)


def card_of_person(person: GooglePerson, groups: Mapping[str, str]) -> bytes:
    """The card. `groups`: what those that people have made are called, by their resource names."""
    lines = ("BEGIN:VCARD", "VERSION:3.0", f"UID:{_plain_text(person.resource_name)}", *_card_lines(person, groups))
    return b"".join(map(fold_line, (*lines, "END:VCARD")))


def _card_lines(person: GooglePerson, groups: Mapping[str, str]) -> Iterator[str]:
    yield from _name_lines(person)
    yield from _list_line("NICKNAME", [one.value for one in person.nicknames if one.value])
    yield from (f"EMAIL{_parameters_of(one)}:{escape_text(one.value)}" for one in person.email_addresses if one.value)
    yield from (f"TEL{_parameters_of(one)}:{escape_text(one.value)}" for one in person.phone_numbers if one.value)
    yield from (f"ADR{_parameters_of(one)}:{_address_of(one)}" for one in person.addresses)
    for one in person.im_clients:
        yield f"IMPP{_parameters_of(one)}:{_plain_text(one.protocol) or 'im'}:{escape_text(one.username)}"
    yield from (f"URL{_parameters_of(one)}:{_plain_text(one.value)}" for one in person.urls)
    yield from _single_lines(person)
    yield from _list_line("CATEGORIES", [groups[each] for one in person.memberships if (each := one.group) in groups])
    yield f"X-GOOGLE-SOURCE:{_plain_text(' '.join(f'{one.type}/{one.id}' for one in person.metadata.sources))}"
    if person.updated:
        yield f"REV:{_plain_text(person.updated)}"


def _single_lines(person: GooglePerson) -> Iterator[str]:
    for one in person.organizations[:1]:
        yield f"ORG{_source_of(one)}:{escape_text(one.name)};{escape_text(one.department)}"
        if one.title:
            yield f"TITLE{_source_of(one)}:{escape_text(one.title)}"
    for one in person.birthdays[:1]:
        yield f"BDAY{_source_of(one)}:{_birthday_of(one)}"
    for one in person.biographies[:1]:
        yield f"NOTE{_source_of(one)}:{escape_text(one.value)}"


def _list_line(name: str, values: Sequence[str]) -> Iterator[str]:
    if values:
        yield f"{name}:{','.join(map(escape_text, values))}"


def _name_lines(person: GooglePerson) -> Iterator[str]:
    """Names of the user's own contact come before those that people give themselves."""
    found = sorted(person.names, key=lambda one: (one.metadata.source.type != _OWN_SOURCE, not one.metadata.primary))
    if not found:
        return
    one = found[0]
    parts = (one.family_name, one.given_name, one.middle_name, one.honorific_prefix, one.honorific_suffix)
    yield f"FN{_source_of(one)}:{escape_text(one.display_name or ' '.join(filter(None, (parts[1], parts[0]))))}"
    yield f"N{_source_of(one)}:{';'.join(map(escape_text, parts))}"


def _parameters_of(one: PersonField) -> str:
    types = [kind for kind in (_plain_text(one.type).upper(), "PREF" if one.metadata.primary else "") if kind]
    told = [kind for kind in types if not set(kind) & set(':;,"= ')]
    return f"{';TYPE=' + ','.join(told) if told else ''}{_source_of(one)}"


def _source_of(one: PersonField) -> str:
    kind = _plain_text(one.metadata.source.type)
    return "" if kind in ("", _OWN_SOURCE) else f";X-SOURCE={kind}"


def _address_of(one: PersonField) -> str:
    parts = [one.po_box, one.extended_address, one.street_address, one.city, one.region, one.postal_code, one.country]
    if not any(parts):
        parts[2] = one.formatted_value
    return ";".join(map(escape_text, parts))


def _birthday_of(one: PersonField) -> str:
    if not (one.date.month and one.date.day):
        return escape_text(one.text)
    year = f"{one.date.year:04}-" if one.date.year else "--"
    return f"{year}{one.date.month:02}-{one.date.day:02}"


def _plain_text(text: str) -> str:
    return "".join(character for character in text if character >= " " and character != "\x7f")


def group_names(found: Any) -> dict[str, str]:
    """Of groups as Google lists them: those that people have made, by their resource names."""
    groups = convert(found, tuple[_Group, ...])
    return {one.resource_name: one.name for one in groups if one.group_type == "USER_CONTACT_GROUP" and one.name}


class _Group(Struct, frozen=True, rename="camel"):
    resource_name: str = ""
    name: str = ""
    group_type: str = ""
