"""Keystead in other frameworks."""
