"""The commands on SQL tables: one interpreter for every SQL store."""

from keystead.stores.sql.interpreter import Interpreter
from keystead.stores.sql.key_tables import KeyTables

__all__ = ["Interpreter", "KeyTables"]
