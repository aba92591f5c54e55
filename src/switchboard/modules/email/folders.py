"""Which folders of a mailbox are searched: all mails where there is such a folder, else those that matter. Pure.

`looking.py` asks it. In: the folders of a server; out: those to open, in that order. Trash and junk are searched only
when they are named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from switchboard.transport.mail_servers.mailbox import MailFolder

INBOX: Final = "INBOX"
_ALL, _SENT, _ARCHIVE, _DRAFTS = "\\all", "\\sent", "\\archive", "\\drafts"
_USUAL: Final = {
    _SENT: (
        *("sent", "sent items", "sent messages", "sent mail", "gesendet", "gesendete elemente", "gesendete objekte"),
        *("envoyés", "éléments envoyés", "messages envoyés", "enviados", "posta inviata", "inviata", "verzonden"),
        *("wysłane", "skickat", "sendt", "送信済み", "送信済みメール", "送信済みアイテム", "已发送", "отправленные"),
    ),
    _DRAFTS: (
        *("drafts", "draft", "draft messages", "entwürfe", "brouillons", "borradores", "bozze", "concepten", "utkast"),
        *("kladder", "szkice", "robocze", "下書き", "草稿", "черновики"),
    ),
    _ARCHIVE: ("archive", "archives", "archiv", "archivio", "archivo", "archief", "archiwum", "アーカイブ"),
}
"""What such folders are called by servers that do not mark them."""


def is_sent(folder: MailFolder, folders: Iterable[MailFolder]) -> bool:
    """Whether mails in it were sent by the person of the mailbox."""
    return folder in _folders_for(_SENT, folders)


def drafts_folder(folders: Iterable[MailFolder]) -> str | None:
    """Where drafts are; None: nothing is called so."""
    found = _folders_for(_DRAFTS, folders)
    return found[0].name if found else None


def is_for_all(folder: MailFolder) -> bool:
    """Whether it has the mails of all others, also those that were sent."""
    return _ALL in _uses_of(folder)


def folders_to_search(named: str, folders: Sequence[MailFolder]) -> tuple[MailFolder, ...]:
    """The folder with this name, or without one all that are usually searched. Nothing if it is not there."""
    if named:
        exact = [one for one in folders if one.name == named]
        return tuple(exact or [one for one in folders if one.name.casefold() == named.casefold()])[:1]
    if everything := [one for one in folders if is_for_all(one)]:
        return (everything[0],)
    inbox = [one for one in folders if one.name.upper() == INBOX]
    return (*inbox, *_folders_for(_SENT, folders), *_folders_for(_ARCHIVE, folders))


def _folders_for(use: str, folders: Iterable[MailFolder]) -> tuple[MailFolder, ...]:
    """Those that the server marks, else those with a usual name; what was filed below them, too."""
    known = tuple(folders)
    found = [one for one in known if use in _uses_of(one)]
    return tuple(found or [one for one in known if _last_name(one) in _USUAL[use]])


def _uses_of(folder: MailFolder) -> frozenset[str]:
    return frozenset(flag.lower() for flag in folder.flags)


def _last_name(folder: MailFolder) -> str:
    """The name without those of the folders that it is in."""
    return folder.name.rpartition(folder.delimiter)[2].casefold() if folder.delimiter else folder.name.casefold()
