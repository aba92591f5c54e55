"""Public test support for authors of agents and connectors, and for our own tests, chaos runs and benchmarks."""
