"""Everything that third parties need to import: `engine` (what answers for a butler), `channel`, `connector`, `module`,
`tools`, and the values that these use.

Values and protocols only: no database rows, no connections, no I/O. The packages above implement the protocols;
`switchboard.testing` holds the suites that test an implementation.
"""
