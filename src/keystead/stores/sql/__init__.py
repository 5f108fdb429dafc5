"""What the commands mean on tables: one interpretation for every SQL store."""

from keystead.stores.sql.interpreter import Interpreter
from keystead.stores.sql.tables import Tables, TooWide

__all__ = ["Interpreter", "Tables", "TooWide"]
