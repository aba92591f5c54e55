"""Public helpers for people who write agents and connectors, and for our own tests, chaos runs and benchmarks."""
