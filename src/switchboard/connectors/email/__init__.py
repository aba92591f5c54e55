"""E-mail: an IMAP mailbox that is read, and an SMTP server that takes the answers. Next: `manifest.py`."""
