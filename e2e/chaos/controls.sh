#!/usr/bin/env bash
# Builds the server with each planted bug that clients can see, and wants short rounds of
# chaos to find it. Prints in which round they did. Arguments: rounds at most, seed, tags.
set -uo pipefail
cd "$(dirname "$0")/../.."
rounds=${1:-100} seed=${2:-1}
shift $(($# < 2 ? $# : 2))
tags=("$@")
if ((${#tags[@]} == 0)); then
  tags=(bug_ackbeforecommit bug_forgetwaiter bug_maporder bug_reusetoken bug_ignorededup bug_losesubscriber bug_unconfirmedread)
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
go build -o "$dir/quorate" ./cmd/quorate || exit 1
for tag in "${tags[@]}"; do
  go build -tags "stress,$tag" -o "$dir/$tag" ./cmd/quorate || exit 1
done
missed=0
for tag in "${tags[@]}"; do
  "$dir/quorate" chaos -binary "$dir/$tag" -dir "$dir/run-$tag" -rounds "$rounds" -round 10s -seed "$seed" >"$dir/out" 2>&1
  code=$?
  found=$(grep -c '^round ' "$dir/out")
  if ((code == 1)) && grep -q 'PROBLEMS' "$dir/out"; then
    echo "$tag: found in round $found: $(grep -A1 'PROBLEMS' "$dir/out" | tail -1)"
  else
    echo "$tag: not found in $found rounds, exit code $code"
    tail -3 "$dir/out"
    missed=1
  fi
  rm -rf "$dir/run-$tag"
done
exit $missed
