"""Read a hand-written key document: tables, blocks, lists and commands, in English, Japanese or Korean."""

from keystead.schema.infer.document.document_drafting import DocumentDraft, draft_document

__all__ = ["DocumentDraft", "draft_document"]
