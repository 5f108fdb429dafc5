"""The JSON Schema of what is written, as Pydantic is told to make it."""

from __future__ import annotations

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from keystead.schema.codec.omitted import is_none


class StoredSchema(GenerateJsonSchema):
    """The JSON Schema of what is written: with fields that have a default, and without computed fields."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 (as Pydantic declares it)

    def field_is_required(
        self,
        field: core_schema.ModelField | core_schema.DataclassField | core_schema.TypedDictField,
        total: bool,
    ) -> bool:
        if field.get("serialization_exclude_if") is not None:
            return False
        return field["type"] != "typed-dict-field" or field.get("required", total)

    def model_fields_schema(self, schema: core_schema.ModelFieldsSchema) -> JsonSchemaValue:
        schema = schema.copy()
        schema["computed_fields"] = []
        return super().model_fields_schema(schema)

    def dataclass_args_schema(self, schema: core_schema.DataclassArgsSchema) -> JsonSchemaValue:
        schema = schema.copy()
        schema["computed_fields"] = []
        return super().dataclass_args_schema(schema)

    def model_field_schema(self, schema: core_schema.ModelField) -> JsonSchemaValue:
        return _without_null(schema, super().model_field_schema(schema))

    def dataclass_field_schema(self, schema: core_schema.DataclassField) -> JsonSchemaValue:
        return _without_null(schema, super().dataclass_field_schema(schema))


def _without_null(
    field: core_schema.ModelField | core_schema.DataclassField, schema: JsonSchemaValue
) -> JsonSchemaValue:
    """A field that is left out while it is None is never null."""
    if field.get("serialization_exclude_if") is not is_none or "anyOf" not in schema:
        return schema
    kept = [choice for choice in schema["anyOf"] if choice != {"type": "null"}]
    rest = {name: value for name, value in schema.items() if name not in ("anyOf", "default")}
    return rest | (kept[0] if len(kept) == 1 else {"anyOf": kept})
