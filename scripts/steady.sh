#!/usr/bin/env bash
# Usage: scripts/steady.sh [RUNS] [ARGS of make test]
#
# Runs `make test` several times in a row (default: five), as under `nohup`, while four busy processes share the
# processors. Prints the time and result of each run, and exits with 1 if one failed. Each run has a log.
set -uo pipefail
cd "$(dirname "$0")/.."

runs=5
if [[ ${1:-} =~ ^[0-9]+$ ]]; then
    runs=$1
    shift
fi
logs=$(mktemp -d)
busy=()
trap '((${#busy[@]})) && kill "${busy[@]}" 2>/dev/null' EXIT
for _ in 1 2 3 4; do
    (while :; do :; done) &
    busy+=($!)
done

make --no-print-directory .venv/.ready || exit 1
failed=0
for run in $(seq "$runs"); do
    began=$SECONDS
    # A signal that is ignored here stays ignored in all that is started from here.
    if (
        trap '' HUP INT
        exec make --no-print-directory test ARGS="$*"
    ) >"$logs/$run.txt" 2>&1 </dev/null; then result=green; else result=red failed=1; fi
    took=$((SECONDS - began))
    printf 'run %d: %d:%02d, %s: %s\n' "$run" $((took / 60)) $((took % 60)) "$result" "$(grep -E " in [0-9.]+s" "$logs/$run.txt" | tail -n 1)"
    [[ $result == green ]] || grep -E '^(FAILED|ERROR)' "$logs/$run.txt"
done
echo "The logs are in $logs."
exit "$failed"
