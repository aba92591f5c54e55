"""Memory without a database: what a text is found by, how facts are ranked, and which of them still hold."""
