"""What the module is, before it is open. The entry point `calendar` of the group `switchboard.modules`."""

from __future__ import annotations

from typing import Final

from switchboard.modules.calendar.settings import CalendarSettings
from switchboard.modules.calendar.tools import (
    calendar_find_slots,
    calendar_free_busy,
    calendar_list,
    calendar_query,
    calendar_read_invitation,
)
from switchboard.modules.calendar.write_tools import WRITING_TOOLS
from switchboard.ports.calendar_mails import CALENDAR_MAILS
from switchboard.ports.contact_resolver import CONTACTS
from switchboard.ports.mail_desk import MAIL_DESK
from switchboard.ports.module import ModuleManifest, PersonalQueries, typed_tool
from switchboard.ports.people_seen import PEOPLE

MANIFEST: Final = ModuleManifest(
    name="calendar",
    tools=(
        typed_tool(calendar_query, effect="idempotent", reach="inside"),
        typed_tool(calendar_free_busy, effect="idempotent", reach="inside"),
        typed_tool(calendar_list, effect="idempotent", reach="inside", core=False),
        typed_tool(calendar_find_slots, effect="idempotent", reach="inside", core=False),
        typed_tool(calendar_read_invitation, effect="idempotent", reach="inside", core=False),
        *WRITING_TOOLS,
    ),
    opens="switchboard.modules.calendar.opened:open_calendar",
    settings=CalendarSettings,
    sql=("switchboard.modules.mirror.sql", "switchboard.modules.calendar.sql"),
    logs_in={
        "caldav": "switchboard.modules.accounts.wizard:log_in_caldav",
        "google": "switchboard.modules.accounts.consent_wizard:log_in_google",
    },
    personal=PersonalQueries(
        "occurrences.of_person", ("writes.erase_of_person", "mails.erase_of_person", "occurrences.erase_of_person")
    ),
    needs=(PEOPLE, CONTACTS, MAIL_DESK, CALENDAR_MAILS),
)
