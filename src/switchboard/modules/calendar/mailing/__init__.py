"""Invitations, cancellations and answers as mails (iTIP and iMIP, RFC 5546 and 6047): who gets which, what they say."""
