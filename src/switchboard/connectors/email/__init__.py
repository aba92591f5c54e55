"""E-mail: reading an IMAP mailbox, and sending answers through an SMTP server. Next: `manifest.py`."""
