"""Secrets in a backup: one member, encrypted with a passphrase as `age -p` does.

Called by `saving.py` and `restoring.py`. In: bytes and a passphrase; out: bytes. It imports the package pyrage, which
may be missing (`passphrases.py`), so it is imported late. Next: `archive.py`.
"""

from __future__ import annotations

from typing import Final

import pyrage

from switchboard.domain.errors import ConfigurationError, InvalidInput

_TOO_SLOW: Final = "Excessive work"
_ATTEMPTS: Final = 200
"""Each takes milliseconds if it is refused."""


def seal(data: bytes, passphrase: str) -> bytes:
    """Encrypt; this takes about a second, so that guessing takes long."""
    return pyrage.passphrase.encrypt(data, passphrase)


def unseal(data: bytes, passphrase: str) -> bytes:
    """Decrypt. Raises InvalidInput for a wrong passphrase, ConfigurationError if this machine is too slow for it.

    The package measures for a moment how fast the machine is, and refuses what would take longer than 16 s; on a busy
    machine some of these moments mislead.
    """
    for attempt in range(_ATTEMPTS):
        try:
            return pyrage.passphrase.decrypt(data, passphrase)
        except pyrage.DecryptError as error:
            if _TOO_SLOW not in str(error):
                raise InvalidInput(f"the passphrase is not that of this backup ({error})") from error
            if attempt == _ATTEMPTS - 1:
                raise ConfigurationError(
                    "the secrets were encrypted on a much faster machine; when this one is less busy, try again, or "
                    "restore --without-secrets, and let `age -d` decrypt secrets.age of the backup, a tar as well"
                ) from error
    raise AssertionError
