"""Sharing: links that lead a receiver to a file until they expire, and the clean-up of the files."""

from keystead.kits.sharing.keys import SharingKeys
from keystead.kits.sharing.models import EdgeMeta

__all__ = ["EdgeMeta", "SharingKeys"]
