#!/usr/bin/env bash
# Rewrites requirements/*.txt from pyproject.toml: every version pinned with its hashes, for every platform
# and every supported Python, naming no download host. Needs `uv` (the caller puts it on PATH).
set -euo pipefail
cd "$(dirname "$0")/.."

compile() {
    local output=$1
    shift
    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --no-header --no-annotate --no-emit-index-url --no-emit-find-links "$@" --output-file "$output"
    echo "wrote $output"
}

compile requirements/run.txt pyproject.toml --extra server --extra fast --extra redis --extra postgres --extra mysql --group build "$@"
compile requirements/dev.txt pyproject.toml --extra server --extra fast --extra redis --extra postgres --extra mysql --extra testing --group dev --constraints requirements/run.txt "$@"
compile requirements/docs.txt --group docs --group build --constraints requirements/dev.txt "$@"
compile requirements/node.txt --group node "$@"
