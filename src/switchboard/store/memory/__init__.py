"""Memory of butlers: histories, the summaries that stand for old ones, and what was learned from them."""
