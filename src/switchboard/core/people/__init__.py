"""Who wrote a message, who reads its answer, who owns a butler, and who must be let in first. Pure."""
