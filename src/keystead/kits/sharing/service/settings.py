"""What the sharing kit can be told."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from keystead.errors import BadDeclaration, BadUrl
from keystead.kits.setting_types import Duration, LimitsByName, Words, known
from keystead.kits.sharing.keys import LONGEST
from keystead.kits.sharing.service.names import is_host
from keystead.kits.sharing.service.sealed_links import key_bytes
from keystead.parts.blobs import open_blobs
from keystead.parts.schedule.cron import Cron
from keystead.parts.sizes import size_bytes
from keystead.schema.lifetime import duration_ms

# Requests of one client in a minute, by what they ask for.
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
_LOOKED_AHEAD = 400  # runs of the clean-up: at least a day of minutes of an hour, and a year of days


class SharingSettings(BaseModel):
    """The table `[sharing]` of keystead.toml."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    issue_key: SecretStr | None = Field(
        None, description="The secret of whoever may upload and issue links, sent as `Authorization: Bearer …`."
    )
    open: bool = Field(
        False,
        description="Without `issue_key`: whether in production anybody may upload and issue links. Registering files "
        "always takes the key.",
    )
    allow_users: bool = Field(
        False,
        description="Whether whoever is signed in may upload and issue links without `issue_key`.",
    )
    token_keys: SecretStr | None = Field(
        None,
        description="Keys of 32 bytes that seal links, in base64url, base64 or hex, divided by commas; the last one "
        "seals, all open. Without this, they are derived from `seal_keys`.",
    )
    allowed_hosts: Words = Field(
        ("public.blob.vercel-storage.com", "blob.vercel-storage.com"),
        description="Hosts that links may lead to, with all that are under them.",
    )
    ttl: Duration = Field("7d", description="How long a link lives that does not say.")
    max_ttl: Duration = Field(LONGEST, description="How long a link can live; one that asks for more gets this.")
    files: str = Field(
        "keystead.files",
        repr=False,
        description="Where uploaded files are kept, the same for all servers: a folder, or "
        "`s3://bucket/prefix?region=…&endpoint=…`.",
    )
    files_moved: bool = Field(
        False,
        description="Say `true` for one start after all files were moved to `files` from where the store remembers "
        "them.",
    )
    max_upload: str = Field("100MB", description="The largest file that can be uploaded, such as `100MB`.")
    quota: str | None = Field(
        None,
        description="How much is kept of all uploads together, such as `50GB`; `0`: no limit. Without this, 100 times "
        "`max_upload`.",
    )
    quota_per_user: str | None = Field(
        None,
        description="How much is kept of the uploads of one user, or of one address that is not signed in, such as "
        "`5GB`; `0`: no limit. Without this, 10 times `max_upload`.",
    )
    cleanup_secret: SecretStr | None = Field(
        None, description="The secret of whoever may call the clean-up from outside; it runs by itself without that."
    )
    cleanup_cron: str = Field(
        "*/5 * * * *", description="When the clean-up runs by itself, as cron text, in UTC: every five minutes."
    )
    cleanup_batch: int = Field(100, ge=1, le=10_000, description="How many files a batch of the clean-up has.")
    trust_vercel_cron: bool = Field(
        False,
        description="Whether the header `x-vercel-cron`, which anybody can send, may call the clean-up.",
    )
    limits: Annotated[LimitsByName, known(LIMITS)] = Field(
        default_factory=dict, description=f"Requests of one client in a minute: {', '.join(LIMITS)}; 0: no limit."
    )

    @field_validator("allowed_hosts")
    @classmethod
    def _are_hosts(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for host in given:
            if not is_host(host):
                raise ValueError(f"{host!r} is no host; write it as files.example.com, in lower case, without https://")
        return given

    @field_validator("token_keys")
    @classmethod
    def _are_keys(cls, given: SecretStr | None) -> SecretStr | None:
        if given is not None:
            if not _parts(given) or len(set(_parts(given))) < len(_parts(given)):
                raise ValueError("write keys divided by commas, each once")
            for number, one in enumerate(_parts(given), 1):
                if key_bytes(one) is None:
                    raise ValueError(f"key {number} has not 32 bytes; make one with `openssl rand -base64 32`")
        return given

    @field_validator("issue_key", "cleanup_secret")
    @classmethod
    def _is_long(cls, given: SecretStr | None) -> SecretStr | None:
        if given is not None and len(given.get_secret_value().strip()) < _SECRET_MIN:
            raise ValueError(f"at least {_SECRET_MIN} characters; `openssl rand -hex 32` makes a good one")
        return given

    @field_validator("cleanup_cron")
    @classmethod
    def _is_cron(cls, given: str) -> str:
        try:
            Cron(given, "UTC")
        except BadDeclaration as error:
            raise ValueError(str(error)) from None
        return given

    @field_validator("files")
    @classmethod
    def _is_a_place_of_its_own(cls, given: str) -> str:
        folder = Path(given.removeprefix("file://"))
        if given.startswith("s3://"):
            try:
                open_blobs(given)  # which asks nobody yet
            except BadUrl as error:
                raise ValueError(str(error)) from None
        if "://" not in given.removeprefix("file://") and Path.cwd().is_relative_to(folder.resolve()):
            raise ValueError("a folder for files alone, such as keystead.files; not one that holds other things, too")
        return given

    @field_validator("ttl", "max_ttl")
    @classmethod
    def _is_short(cls, given: str) -> str:
        if duration_ms(given) > duration_ms(LONGEST):
            raise ValueError(f"the store keeps a link for {LONGEST} at most; write that or less")
        return given

    @field_validator("max_upload")
    @classmethod
    def _is_size(cls, given: str) -> str:
        try:
            size_bytes(given)
        except ValueError:
            raise ValueError("no size; write 500kB, 100MB or 2GiB") from None
        return given

    @field_validator("quota", "quota_per_user")
    @classmethod
    def _is_quota(cls, given: str | None) -> str | None:
        try:
            _quota_bytes(given, 0)
        except ValueError:
            raise ValueError("no size; write 5GB, 500MB or 0 for no limit") from None
        return given

    @model_validator(mode="after")
    def _takes_the_largest_file(self) -> Self:
        largest = size_bytes(self.max_upload)
        for name, most in (("quota", self.quota_bytes), ("quota_per_user", self.quota_per_user_bytes)):
            if 0 < most < largest:
                raise ValueError(f"{name} is less than max_upload ({self.max_upload}), so no such file could be kept")
        return self

    @property
    def quota_bytes(self) -> int:
        """How much is kept of all uploads; 0: no limit."""
        return _quota_bytes(self.quota, 100 * size_bytes(self.max_upload))

    @property
    def quota_per_user_bytes(self) -> int:
        """How much is kept of the uploads of one user; 0: no limit."""
        return _quota_bytes(self.quota_per_user, 10 * size_bytes(self.max_upload))

    @cached_property
    def cleanup_within_ms(self) -> int:
        """The longest time between two runs of the clean-up, as far as its cron text can be looked ahead."""
        cron, at_ms, longest = Cron(self.cleanup_cron, "UTC"), 0, 0
        for _ in range(_LOOKED_AHEAD):
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
        """The keys that were set; none: they are derived."""
        parts = [] if self.token_keys is None else _parts(self.token_keys)
        return [key for key in map(key_bytes, parts) if key is not None]


def _quota_bytes(given: str | None, default: int) -> int:
    if given is None:
        return default
    return 0 if given.strip() == "0" else size_bytes(given)


def missing(settings: SharingSettings) -> Sequence[str]:
    """What production needs and these settings lack."""
    found = []
    if settings.issue_key is None and not settings.open and not settings.allow_users:
        how = "set RECEIVE_ISSUE_KEY, or write allow_users = true if all users may, or open = true if anybody may"
        found.append(f"sharing.issue_key: the secret of whoever may upload files and issue links; {how}")
    if settings.files.startswith("memory:"):
        found.append("sharing.files: a place that all processes share and that outlives them: a folder, or s3://…")
    return found


def _parts(secret: SecretStr) -> list[str]:
    return [part.strip() for part in secret.get_secret_value().split(",") if part.strip()]
