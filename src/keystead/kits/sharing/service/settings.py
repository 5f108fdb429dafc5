"""Settings of the sharing kit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from keystead.errors import BadDeclaration, BadUrl
from keystead.kits.setting_types import Duration, LimitsByName, Words, check_limit_names
from keystead.kits.sharing.keys import LONGEST
from keystead.kits.sharing.service.names import is_host
from keystead.kits.sharing.service.sealed_links import key_bytes
from keystead.parts.blobs import open_blobs
from keystead.parts.schedule.cron import Cron
from keystead.parts.sizes import size_bytes
from keystead.schema.lifetime import duration_ms

# Requests per minute and client, by kind of request.
LIMITS: Final = {
    "token": 30,
    "resolve": 120,
    "delete": 10,
    "upload": 60,
    "csrf": 120,
    "page": 120,
    "download": 120,
    "cleanup": 30,
}

_SECRET_MIN = 16
_RUNS_AHEAD = 400  # examined clean-up runs: covers every minute pattern of a day, and every day of a year


class SharingSettings(BaseModel):
    """The table `[sharing]` of keystead.toml."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    issue_key: SecretStr | None = Field(
        None, description="Secret that permits uploading and issuing links, sent as `Authorization: Bearer …`."
    )
    open: bool = Field(
        False,
        description="Let anyone upload and issue links in production, without `issue_key`. Registering files always "
        "needs the key.",
    )
    allow_users: bool = Field(
        False,
        description="Let signed-in users upload and issue links without `issue_key`.",
    )
    token_keys: SecretStr | None = Field(
        None,
        description="32-byte keys that encrypt links, in base64url, base64 or hex, separated by commas; the last one "
        "encrypts, all decrypt. Default: derived from `seal_keys`.",
    )
    allowed_hosts: Words = Field(
        ("public.blob.vercel-storage.com", "blob.vercel-storage.com"),
        description="Hosts that links may point to, including their subdomains.",
    )
    ttl: Duration = Field("7d", description="Default lifetime of a link.")
    max_ttl: Duration = Field(LONGEST, description="Maximum lifetime of a link; longer requests are capped.")
    files: str = Field(
        "keystead.files",
        repr=False,
        description="Location of uploaded files, the same for all servers: a folder, or "
        "`s3://bucket/prefix?region=…&endpoint=…`.",
    )
    files_moved: bool = Field(
        False,
        description="Set to `true` for one start after moving all files to a new `files` location.",
    )
    max_upload: str = Field("100MB", description="Maximum size of an upload, such as `100MB`.")
    quota: str | None = Field(
        None,
        description="Storage quota for all uploads, such as `50GB`; `0`: no limit. Default: 100 times `max_upload`.",
    )
    quota_per_user: str | None = Field(
        None,
        description="Storage quota per user, or per address without a sign-in, such as `5GB`; `0`: no limit. Default: "
        "10 times `max_upload`.",
    )
    cleanup_secret: SecretStr | None = Field(
        None, description="Secret for calling the clean-up over HTTP; the scheduled clean-up does not need it."
    )
    cleanup_cron: str = Field("*/5 * * * *", description="Schedule of the clean-up, as a cron expression in UTC.")
    cleanup_batch: int = Field(100, ge=1, le=10_000, description="Files per clean-up batch.")
    trust_vercel_cron: bool = Field(
        False,
        description="Accept the header `x-vercel-cron` for calling the clean-up. Anyone can send it.",
    )
    limits: Annotated[LimitsByName, check_limit_names(LIMITS)] = Field(
        default_factory=dict, description=f"Requests per minute and client: {', '.join(LIMITS)}; 0: no limit."
    )

    @field_validator("allowed_hosts")
    @classmethod
    def _check_hosts(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for host in given:
            if not is_host(host):
                raise ValueError(f"{host!r} is not a host; use lower case without https://, such as files.example.com")
        return given

    @field_validator("token_keys")
    @classmethod
    def _check_token_keys(cls, given: SecretStr | None) -> SecretStr | None:
        if given is not None:
            if not _parts(given) or len(set(_parts(given))) < len(_parts(given)):
                raise ValueError("separate keys with commas, and use each only once")
            for number, one in enumerate(_parts(given), 1):
                if key_bytes(one) is None:
                    raise ValueError(f"key {number} must have 32 bytes; create one with `openssl rand -base64 32`")
        return given

    @field_validator("issue_key", "cleanup_secret")
    @classmethod
    def _check_secret(cls, given: SecretStr | None) -> SecretStr | None:
        if given is not None and len(given.get_secret_value().strip()) < _SECRET_MIN:
            raise ValueError(f"must have at least {_SECRET_MIN} characters; create one with `openssl rand -hex 32`")
        return given

    @field_validator("cleanup_cron")
    @classmethod
    def _check_cron(cls, given: str) -> str:
        try:
            Cron(given, "UTC")
        except BadDeclaration as error:
            raise ValueError(str(error)) from None
        return given

    @field_validator("files")
    @classmethod
    def _check_files(cls, given: str) -> str:
        folder = Path(given.removeprefix("file://"))
        if given.startswith("s3://"):
            try:
                open_blobs(given)  # does not connect yet
            except BadUrl as error:
                raise ValueError(str(error)) from None
        if "://" not in given.removeprefix("file://") and Path.cwd().is_relative_to(folder.resolve()):
            raise ValueError("must be a folder that contains nothing else, such as keystead.files")
        return given

    @field_validator("ttl", "max_ttl")
    @classmethod
    def _check_ttl(cls, given: str) -> str:
        if duration_ms(given) > duration_ms(LONGEST):
            raise ValueError(f"a link is stored for at most {LONGEST}; use that or less")
        return given

    @field_validator("max_upload")
    @classmethod
    def _check_max_upload(cls, given: str) -> str:
        try:
            size_bytes(given)
        except ValueError:
            raise ValueError("not a size; use 500kB, 100MB or 2GiB") from None
        return given

    @field_validator("quota", "quota_per_user")
    @classmethod
    def _check_quota(cls, given: str | None) -> str | None:
        try:
            _quota_bytes(given, 0)
        except ValueError:
            raise ValueError("not a size; use 5GB, 500MB, or 0 for no limit") from None
        return given

    @model_validator(mode="after")
    def _check_quota_fits_upload(self) -> Self:
        largest = size_bytes(self.max_upload)
        for name, most in (("quota", self.quota_bytes), ("quota_per_user", self.quota_per_user_bytes)):
            if 0 < most < largest:
                raise ValueError(f"{name} must not be less than max_upload ({self.max_upload})")
        return self

    @property
    def quota_bytes(self) -> int:
        """Storage quota for all uploads; 0: no limit."""
        return _quota_bytes(self.quota, 100 * size_bytes(self.max_upload))

    @property
    def quota_per_user_bytes(self) -> int:
        """Storage quota per user; 0: no limit."""
        return _quota_bytes(self.quota_per_user, 10 * size_bytes(self.max_upload))

    @cached_property
    def cleanup_within_ms(self) -> int:
        """The longest interval between two scheduled clean-up runs, among the next `_RUNS_AHEAD` runs."""
        cron, at_ms, longest = Cron(self.cleanup_cron, "UTC"), 0, 0
        for _ in range(_RUNS_AHEAD):
            next_ms = cron.after(at_ms)
            longest, at_ms = max(longest, next_ms - at_ms if at_ms else 0), next_ms
        return longest

    @property
    def ttl_ms(self) -> int:
        return min(duration_ms(self.ttl), self.max_ttl_ms)

    @property
    def max_ttl_ms(self) -> int:
        return duration_ms(self.max_ttl)

    @property
    def own_token_keys(self) -> list[bytes]:
        """The keys from `token_keys`; empty if they are to be derived."""
        parts = [] if self.token_keys is None else _parts(self.token_keys)
        return [key for key in map(key_bytes, parts) if key is not None]


def _quota_bytes(given: str | None, default: int) -> int:
    if given is None:
        return default
    return 0 if given.strip() == "0" else size_bytes(given)


def missing(settings: SharingSettings) -> Sequence[str]:
    """What these settings lack for production."""
    found = []
    if settings.issue_key is None and not settings.open and not settings.allow_users:
        how = "set RECEIVE_ISSUE_KEY, allow_users = true for all users, or open = true for anyone"
        found.append(f"sharing.issue_key: who may upload files and issue links is not configured; {how}")
    if settings.files.startswith("memory:"):
        found.append("sharing.files: use a persistent location that all processes share: a folder, or s3://…")
    return found


def _parts(secret: SecretStr) -> list[str]:
    return [part.strip() for part in secret.get_secret_value().split(",") if part.strip()]
