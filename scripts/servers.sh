#!/usr/bin/env bash
# Usage: scripts/servers.sh PROGRAM...
# Sees to it that each PROGRAM the tests start (redis-server, mariadbd, memcached, a browser) is on PATH: as root on Debian it
# installs what is missing, anywhere else it says how to. PROGRAM:OTHER means that OTHER will do where PROGRAM cannot be had.
# Nothing is left running: the tests start their own servers.
set -euo pipefail

# The package of a program; most have the same name.
package() {
    case $1 in
    mariadbd) echo mariadb-server ;;
    systemd-analyze) echo systemd ;;
    Xvfb) echo xvfb ;;
    *) echo "$1" ;;
    esac
}

found() { PATH="$PATH:/usr/sbin" command -v "$1" >/dev/null 2>&1; }

missing=() better=()
for program in "$@"; do
    if ! found "${program%%:*}"; then
        if found "${program##*:}"; then better+=("$(package "${program%%:*}")"); else missing+=("$(package "${program%%:*}")"); fi
    fi
done

can_install() { [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; }
# Another installation on this machine is waited for, not failed on.
apt() { DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 "$@"; }
install() { apt install -y -qq --no-install-recommends "$@"; }

if [ ${#better[@]} -gt 0 ] && can_install; then
    echo "Installing ${better[*]} with apt-get, if it is to be had"
    install "${better[@]}" >/dev/null 2>&1 || true
fi
[ ${#missing[@]} -eq 0 ] && exit 0

if ! can_install; then
    echo "keystead: the tests need ${missing[*]}; on Debian or Ubuntu run 'sudo apt-get install ${missing[*]}'," \
        "elsewhere put the programs on PATH that it has." >&2
    exit 1
fi

# Debian asks /usr/sbin/policy-rc.d before a package starts its service; 101 means "do not". An existing
# policy of the machine is left as it is.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
fi

echo "Installing ${missing[*]} with apt-get (once)"
log=$(mktemp)
# A fresh machine has no package lists, an old one has stale lists: try, refresh, try again.
if ! install "${missing[@]}" >"$log" 2>&1 && ! { apt update -qq && install "${missing[@]}"; } >"$log" 2>&1; then
    cat "$log" >&2
    echo "keystead: apt-get could not install ${missing[*]}; the lines above say why (also in $log)." >&2
    exit 1
fi
rm -f "$log"
