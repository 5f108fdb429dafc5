"""The write guard: checks raw commands of any client against the declared families, before they reach the store."""

from keystead.errors import WriteRefused
from keystead.schema.guard.guarded_store import GuardedStore
from keystead.schema.guard.write_guard import Mode, WriteGuard

__all__ = ["GuardedStore", "Mode", "WriteGuard", "WriteRefused"]
