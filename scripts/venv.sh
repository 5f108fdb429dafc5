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

packages=$(grep -c '==' "$requirements")
log=$(mktemp)
trap 'rm -f "$log"' EXIT
trap 'echo >&2; fail "interrupted; the next run starts the set-up again."' INT

# What pip has to say helps only when it fails; until then, how far it is says more.
pip_install() {
    PYTHONUNBUFFERED=1 "$folder/bin/python" -m pip --disable-pip-version-check --no-input install --no-deps "$@" 2>&1 |
        tee "$log" | show_progress
}

show_progress() {
    local line seen=0
    while IFS= read -r line; do
        [[ -t 1 && $line == Collecting* ]] || continue
        seen=$((seen + 1))
        printf '\r  fetched %d of %d' "$seen" "$packages"
    done
    [ "$seen" -eq 0 ] || printf '\r\033[K'
}

or_show_why() {
    cat "$log" >&2
    fail "$1 could not be installed; the lines above say why."
}

contents=$(cat "$requirements" && "$python" -c 'import sys; print(sys.version)')
installed=$folder/installed.txt # what the folder was made of, so that only a real change makes it anew
if [ "$contents" != "$(cat "$installed" 2>/dev/null)" ]; then
    echo "Setting up $folder with $("$python" --version) (once; this takes a minute or so)"
    "$python" -m venv --clear "$folder"
    echo "  installing the $packages packages of $requirements"
    pip_install --require-hashes -r "$requirements" || or_show_why "the packages of $requirements"
    echo "$contents" >"$installed"
fi
echo "Installing Keystead into $folder"
pip_install --no-build-isolation --editable . || or_show_why "Keystead"
