"""Benchmarks of Keystead beside its alternatives: `python -m bench --help`."""
