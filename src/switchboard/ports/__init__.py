"""What third parties import, and all that they need: `engine` (what answers for a butler), `channel`, `connector`,
`module`, `tools`, and the values that these speak of.

Values and protocols only: no rows of the database, no connection, no I/O. The packages above implement the protocols;
`switchboard.testing` holds the suites that prove an implementation.
"""
