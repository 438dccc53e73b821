"""Benchmarks of the engine; run one as `python -m benchmarks.apply`."""
