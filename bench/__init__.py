"""Side-by-side runs of Keystead's stores against what you would use instead: `python -m bench --help`."""
