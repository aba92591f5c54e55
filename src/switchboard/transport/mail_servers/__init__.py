"""Servers of mail: where they listen, and what is read there by IMAP."""
