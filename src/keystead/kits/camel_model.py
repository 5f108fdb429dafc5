"""The base of models whose JSON has camelCase names: Python names them in snake_case, and this is what translates."""

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class CamelModel(BaseModel):
    """`user_hash` in Python is `userHash` in JSON, stored and over HTTP. Python code names fields in snake_case."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, serialize_by_alias=True)


class CamelBody(CamelModel):
    """What clients send: a field is read under its JSON name only."""

    model_config = ConfigDict(validate_by_name=False)
