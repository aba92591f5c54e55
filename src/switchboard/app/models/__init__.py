"""Opening the models of the settings, for turns, compaction and classification; what they cost, and their tests."""
