"""A drafted `keys.py` as Python runs it."""

from __future__ import annotations

import sys
from types import ModuleType

from keystead import Keyspace
from keystead.schema.infer import Inferred, keys_module


def keyspace_of(found: Inferred) -> type[Keyspace]:
    module = ModuleType("drafted_keys_module")
    sys.modules[module.__name__] = module
    exec(compile(keys_module(found.draft), "keys.py", "exec", dont_inherit=True), vars(module))
    keyspace: type[Keyspace] = module.AppKeys
    return keyspace
