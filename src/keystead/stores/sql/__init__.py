"""What the commands mean on tables: one interpretation for every SQL store."""

from keystead.stores.sql.interpreter import Interpreter
from keystead.stores.sql.key_tables import KeyTables

__all__ = ["Interpreter", "KeyTables"]
