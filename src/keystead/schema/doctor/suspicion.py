"""A suspicion: a possible problem. It becomes a finding only if an atomic second read confirms it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from keystead.schema.doctor.key_state import KeyState


class Suspicion(ABC):
    """A possible problem of a key, how to confirm it, and how to repair it while the application runs."""

    code: str
    removes = False  # whether the repair removes the whole key, so that nothing else can be wrong with it
    note = ""  # why it was not repaired
    sets_aside = False  # whether the repair moves something into quarantine
    deletes = False  # whether the repair deletes the key without keeping a copy

    def __init__(self, look: KeyState) -> None:
        self.look = look

    @property
    def family(self) -> Any:
        return self.look.bound.family

    @property
    def place(self) -> object:
        """The identity by which findings are deduplicated."""
        return id(self.look.store), self.look.key

    @property
    @abstractmethod
    def sentence(self) -> str:
        """The message."""

    @property
    def size(self) -> int:
        """How many keys, or entries of a key, the repair moves into quarantine."""
        return 1 if self.sets_aside else 0

    @abstractmethod
    async def confirm(self) -> bool:
        """Check again, atomically. False: the problem does not exist, or no longer."""

    @abstractmethod
    async def fix(self) -> bool:
        """Repair it if it still exists. False: it does not, or cannot be repaired; `note` has the reason."""
