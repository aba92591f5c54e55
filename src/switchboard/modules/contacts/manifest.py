"""What the module is, before it is open. The entry point `contacts` of the group `switchboard.modules`."""

from __future__ import annotations

from typing import Final

from switchboard.modules.contacts.settings import ContactsSettings
from switchboard.modules.contacts.tools import (
    contacts_create,
    contacts_get,
    contacts_link,
    contacts_recent,
    contacts_resolve,
    contacts_search,
    contacts_update,
    prepare_change,
    prepare_creation,
)
from switchboard.ports.contact_resolver import CONTACTS
from switchboard.ports.module import ModuleManifest, PersonalQueries, typed_tool
from switchboard.ports.people_seen import PEOPLE
from switchboard.ports.recent_writers import RECENT_WRITERS

MANIFEST: Final = ModuleManifest(
    name="contacts",
    tools=(
        typed_tool(contacts_resolve, effect="idempotent", reach="inside"),
        typed_tool(contacts_get, effect="idempotent", reach="inside"),
        typed_tool(contacts_search, effect="idempotent", reach="inside", core=False),
        typed_tool(contacts_recent, effect="idempotent", reach="inside", core=False),
        typed_tool(
            contacts_create, prepare=prepare_creation, effect="idempotent", risk="medium", ordered=True, core=False
        ),
        typed_tool(
            contacts_update, prepare=prepare_change, effect="idempotent", risk="medium", ordered=True, core=False
        ),
        typed_tool(contacts_link, effect="idempotent", reach="inside", core=False),
    ),
    opens="switchboard.modules.contacts.opened:open_contacts",
    settings=ContactsSettings,
    sql=("switchboard.modules.mirror.sql", "switchboard.modules.contacts.sql"),
    personal=PersonalQueries("people.of_person", ("people.erase_of_person",)),
    needs=(PEOPLE, RECENT_WRITERS),
    offers=(CONTACTS,),
    logs_in={"carddav": "switchboard.modules.accounts.wizard:log_in_carddav"},
)
