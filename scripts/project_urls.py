"""The `[project.urls]` of a distribution: those of the repository that it is released from.

`make dist REPOSITORY=https://git.example/team/keystead` adds them. Without it there are none: a fork or a private copy
must not send its users, and their security reports, to somebody else.
"""

import os
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

FILES = {"Documentation": "docs/index.md", "Changelog": "CHANGELOG.md", "Security": "SECURITY.md"}


class ProjectUrls(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        repository = os.environ.get("KEYSTEAD_REPOSITORY", "").rstrip("/")
        if repository:
            files = {label: f"{repository}/blob/HEAD/{path}" for label, path in FILES.items()}
            metadata["urls"] = {"Homepage": repository, "Issues": f"{repository}/issues", **files}
