"""What the module is, before it is open. The entry point `email` of the group `switchboard.modules`."""

from __future__ import annotations

from typing import Final

from switchboard.modules.email.settings import EmailGrants, EmailModuleSettings
from switchboard.modules.email.tools import email_attachment, email_read, email_search
from switchboard.modules.email.write_tools import WRITING_TOOLS
from switchboard.ports.contact_resolver import CONTACTS
from switchboard.ports.mail_desk import MAIL_DESK
from switchboard.ports.module import ModuleManifest, typed_tool
from switchboard.ports.people_seen import PEOPLE

MANIFEST: Final = ModuleManifest(
    name="email",
    tools=(
        typed_tool(email_search, effect="idempotent", reach="inside"),
        typed_tool(email_read, effect="idempotent", reach="inside"),
        typed_tool(email_attachment, effect="idempotent", reach="inside", ordered=True, core=False),
        *WRITING_TOOLS,
    ),
    opens="switchboard.modules.email.opened:open_email",
    settings=EmailModuleSettings,
    grants=EmailGrants,
    needs=(PEOPLE, CONTACTS, MAIL_DESK),
    logs_in={
        "imap": "switchboard.modules.email.wizard:log_in_imap",
        "microsoft": "switchboard.modules.accounts.consent_wizard:log_in_microsoft",
    },
)
