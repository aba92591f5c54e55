"""Says in words why a connection to a mail server could not be encrypted, with the setting that is to change.

Called by `mailbox.py` and by whoever submits mails. In: the server, the table of its settings and the error; out: a
sentence.
"""

from __future__ import annotations

import ssl
from typing import Final

from switchboard.transport.mail_servers.server import Server

_IN_THE_CLEAR: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"})
"""What OpenSSL says of an answer that is not TLS, before and since version 3.2."""


def explain_tls(error: ssl.SSLError, table: str, server: Server) -> str:
    """The reason for people; `table` is `imap` or `smtp`."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"certificate verify failed: {error.verify_message}; {table}.host must be a name in the certificate, and "
            "this machine must trust who signed it (SSL_CERT_FILE names a file of further ones)"
        )
    if server.tls == "tls" and error.reason in _IN_THE_CLEAR:
        return f'it does not begin with TLS: set {table}.tls = "starttls", or {table}.port to the one for TLS'
    return f"TLS failed: {error}; {table}.tls is {server.tls}"
