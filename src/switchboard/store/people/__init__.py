"""Strangers, tokens and the audit trail."""
