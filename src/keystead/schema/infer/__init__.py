"""Infer: draft a keyspace from a live store or a document, and write it as a `keys.py`."""

from keystead.schema.infer.draft import (
    Confidence,
    DraftFamily,
    DraftField,
    DraftKeyspace,
    DraftModel,
    DraftRelation,
    class_name,
    identifier,
)
from keystead.schema.infer.drafting import Inferred, infer
from keystead.schema.infer.keys_module import keys_module
from keystead.schema.infer.soundness import sound

__all__ = [
    "Confidence",
    "DraftFamily",
    "DraftField",
    "DraftKeyspace",
    "DraftModel",
    "DraftRelation",
    "Inferred",
    "class_name",
    "identifier",
    "infer",
    "keys_module",
    "sound",
]
