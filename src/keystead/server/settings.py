"""What a running Keystead can be told, by arguments or by `KEYSTEAD_*` environment variables."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Arguments win over environment variables, and those over the defaults.

    `store` may carry a password, so it is left out of the settings' own text form; show `store.url` of the
    opened store instead, which is redacted.
    """

    model_config = SettingsConfigDict(env_prefix="KEYSTEAD_", frozen=True, hide_input_in_errors=True)

    store: str = Field(default="sqlite:///keystead.db", min_length=1, repr=False)
    host: str = Field(default="127.0.0.1", min_length=1)
    port: int = Field(default=8700, ge=1, le=65535)
