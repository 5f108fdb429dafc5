#!/usr/bin/env bash
# Usage: scripts/venv.sh FOLDER REQUIREMENTS
# Makes or renews the virtual environment FOLDER with exactly the packages of REQUIREMENTS (versions and hashes) and
# Keystead itself, editable. PYTHON names the interpreter; without it the first one that is new enough is taken.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1
requirements=$2

fail() {
    echo "keystead: $1" >&2
    exit 1
}

new_enough() {
    command -v "$1" >/dev/null 2>&1 && "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

choose_python() {
    if [ -n "${PYTHON:-}" ]; then
        command -v "$PYTHON" >/dev/null 2>&1 || fail "there is no '$PYTHON' on this machine; set PYTHON to a Python 3.11 or newer."
        new_enough "$PYTHON" || fail "'$PYTHON' is $("$PYTHON" --version 2>&1), but Keystead needs Python 3.11 or newer; try 'make PYTHON=python3.12 ...'."
        echo "$PYTHON"
        return
    fi
    local candidate
    for candidate in python3 python3.14 python3.13 python3.12 python3.11 python; do
        if new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    fail "no Python 3.11 or newer was found on PATH; install one, or name it with 'make PYTHON=/path/to/python ...'."
}

python=$(choose_python)
"$python" -c 'import venv, ensurepip' 2>/dev/null ||
    fail "'$python' cannot make virtual environments; on Debian and Ubuntu install python3-venv."

pip() { "$folder/bin/python" -m pip --quiet --disable-pip-version-check --no-input "$@"; }

version=$("$python" -c 'import sys; print(sys.version)')
installed=$folder/installed.txt # what the folder was made of, so that only a real change makes it anew
if ! { cat "$requirements" && echo "$version"; } | cmp --silent - "$installed"; then
    echo "Setting up $folder with $("$python" --version) (the first time takes a moment)"
    "$python" -m venv --clear "$folder"
    pip install --require-hashes --no-deps -r "$requirements" ||
        fail "the packages of $requirements could not be installed; the lines above say why."
    { cat "$requirements" && echo "$version"; } >"$installed"
fi
pip install --no-deps --no-build-isolation --editable .
