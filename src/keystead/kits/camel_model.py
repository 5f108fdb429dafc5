"""Base classes of models with snake_case names in Python and camelCase names in JSON."""

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class CamelModel(BaseModel):
    """`user_hash` in Python is `userHash` in JSON, both stored and over HTTP."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, serialize_by_alias=True)


class CamelBody(CamelModel):
    """A request body: fields are accepted under their JSON names only."""

    model_config = ConfigDict(validate_by_name=False)
