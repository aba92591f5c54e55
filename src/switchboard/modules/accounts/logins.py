"""How an account is opened: the password is read from its file or from the environment, whenever that is done.

Modules call it just before they connect, so that a new password counts without a restart. Next: `transport/dav`.
"""

from __future__ import annotations

from switchboard.domain.errors import ConfigurationError
from switchboard.modules.accounts.settings import DavAccount, PasswordPlace
from switchboard.transport.dav.kinds import DavLogin
from switchboard.transport.signed_post import read_secret

_HINT = ", the one that your provider issues for programs"


def read_login(name: str, account: DavAccount) -> DavLogin:
    """The login of the account with this name. Raises ConfigurationError, which says where a password is missing."""
    place = account.password or PasswordPlace()
    try:
        password = read_secret(place.env, place.file, hint=_HINT)
    except ConfigurationError as error:
        raise ConfigurationError(f"the account {name!r}: {error.message}") from error
    return DavLogin(account.url, account.user, password.decode())
