"""Blueprint: what Pydantic knows about a type, as far as codecs need it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from keystead.errors import BadDeclaration
from keystead.schema.codec.core_schemas import (
    CLASSES,
    FIELDS,
    CoreSchemas,
    all_names,
    fields_of,
    is_constrained,
    is_sealed,
    may_hold_floats,
    stored_name,
)
from keystead.schema.codec.json_schemas import resolve_reference
from keystead.schema.codec.sentences import STORABLE, Problem, bad_type, bad_version, problems_of
from keystead.schema.codec.shapes import shape_of_value
from keystead.schema.codec.storable import check_storable, storable_kinds
from keystead.schema.codec.stored_schema import StoredSchema
from keystead.schema.codec.versions import Versions
from keystead.schema.seal import NoSealing, Sealing


class Blueprint:
    """A type as Pydantic understands it, checked for whether it can be stored and read back."""

    def __init__(self, type_: Any, place: str) -> None:
        """`place` is prepended to each error message. Raises `BadDeclaration`."""
        self.type = type_
        self._place = place
        try:
            self.adapter: TypeAdapter[Any] = TypeAdapter(type_)
            self.schema = self.adapter.json_schema(mode="serialization", schema_generator=StoredSchema)
        except (PydanticUserError, TypeError, NameError, ValueError) as error:
            raise self._bad(str(error).partition("\n")[0].partition(". ")[0].rstrip("."), STORABLE) from None
        core = CoreSchemas(self.adapter.core_schema)
        self.sealed = any(map(is_sealed, core.nodes))
        self.floats = any(map(may_hold_floats, core.nodes))
        self.constrained = any(map(is_constrained, core.nodes))
        self.names = frozenset(name for node in core.nodes for name in all_names(node))
        self.kinds = storable_kinds(self.schema, self._bad)
        root = core.root(core.top, CLASSES)
        self.class_: type | None = root["cls"] if root else None
        is_root_model = bool(root and root.get("root_model"))
        self._root_fields = {} if is_root_model else core.root(core.top, FIELDS) or {}
        self.stored_names = {name: stored_name(name, field) for name, field in fields_of(self._root_fields)}
        self.field_names = frozenset(self.stored_names)
        self.name = self.class_.__name__ if self.class_ else shape_of_value(self.schema)
        check_storable(core, self._bad)

    def reason(self, problems: list[Problem]) -> str:
        """Why a value does not fit, with declared names, and without the value."""
        reasons = [f"{self.place_of(p.path)}: {p.sentence}" if p.path else p.sentence for p in problems[:5]]
        more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
        return f"is not a valid {self.name}: {'; '.join(reasons)}{more}"

    def why_not(self, error: Exception, value: Any, sealing: Sealing | NoSealing | None = None) -> str:
        """Why a value cannot be written."""
        if isinstance(error, ValidationError):
            return self.reason(problems_of(error))
        # Pydantic's message quotes the value. So each field is checked separately, and only names are used.
        wrong = [name for name, _ in fields_of(self._root_fields) if not self._is_writable(value, name, sealing)]
        fields = f" in {', '.join(wrong)}" if wrong else ""
        return f"contains a value{fields} that does not fit its declaration, or that JSON cannot represent"

    def place_of(self, path: Iterable[str | int]) -> str:
        """A path in a value, with declared names only: other names are data."""
        return ".".join(str(part) if isinstance(part, int) or part in self.names else "*" for part in path)

    def version_name(self, versions: Versions) -> str | None:
        """The Python name of the field that holds the version; None if the type does not declare it."""
        if not self._root_fields:
            raise self._bad_version("only a model, a dataclass or a TypedDict can have versions", "write one of those")
        for name, field in fields_of(self._root_fields):
            if stored_name(name, field) == versions.field:
                declared = self._resolve(self._resolve(self.schema)["properties"][versions.field])
                allowed = [declared["const"]] if "const" in declared else declared.get("enum", [versions.current])
                if declared.get("type") != "integer" or versions.current not in allowed:
                    advice = f"declare it as {name}: int = {versions.current}"
                    raise self._bad_version(f"its field {name} cannot hold version {versions.current}", advice)
                return name
        return None

    def _is_writable(self, value: Any, name: str, sealing: Sealing | NoSealing | None) -> bool:
        try:
            self.adapter.serializer.to_json(value, include={name}, context=sealing, warnings="error")
        except Exception:
            return False
        return True

    def _resolve(self, schema: dict[str, Any]) -> dict[str, Any]:
        return resolve_reference(schema, self.schema.get("$defs", {}))

    def _bad(self, what: str, advice: str) -> BadDeclaration:
        return bad_type(self._place, self.type, what, advice)

    def _bad_version(self, what: str, advice: str) -> BadDeclaration:
        return bad_version(f"{self._place}{what}", advice)
