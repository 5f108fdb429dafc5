"""The values of the sharing kit, with the names that their fields have in the stored JSON."""

from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator

from keystead.schema import IsoTime, OmittedIfNone


class EdgeMeta(BaseModel):
    """What the clean-up job must know to delete an upload. One of `blob_name` and `pathname` is enough."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    id: str
    blob_name: OmittedIfNone[str] = None
    """the name of the file where it is kept"""
    pathname: OmittedIfNone[str] = None
    """the same, by its path"""
    expires_at: IsoTime
    short_token: OmittedIfNone[str] = None
    """the link to it, if there is one"""

    @model_validator(mode="after")
    def _names_the_file(self) -> Self:
        if not (self.blob_name or self.pathname):
            raise ValueError("blob_name or pathname must name the file")
        return self
