#!/usr/bin/env bash
# Builds the Dockerfile and runs the image with buildah, without a daemon and without a
# registry: the base image is made from this machine's Go and from busybox. Checks that the
# server becomes ready, as whom it runs, that the health check answers and that it drains.
# Wants root, and the distribution's packages buildah and busybox-static.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$(mktemp -d)
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs
buildah() { command buildah --root "$dir/images" --runroot "$dir/run" "$@"; }
clean() {
  buildah rm --all >/dev/null 2>&1 || true
  rm -rf "$dir"
}
trap clean EXIT
fail() {
  echo "$*" >&2
  [ ! -f "$dir/log" ] || tail -n 20 "$dir/log" >&2
  exit 1
}

stage=$(sed -n 's/^FROM \(\S*\) AS build$/\1/p' Dockerfile)
base=$(buildah from scratch)
root=$(buildah mount "$base")
mkdir -p "$root"/{bin,proc,sys,dev,root,go,usr/local,etc/ssl/certs}
mkdir -m 1777 "$root/tmp"
cp "$(command -v busybox)" "$root/bin/busybox"
for name in sh mkdir chown; do ln -s busybox "$root/bin/$name"; done
cp -a "$(go env GOROOT)" "$root/usr/local/go"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
buildah umount "$base" >/dev/null
buildah config --env PATH=/usr/local/go/bin:/bin --env GOPATH=/go --env GOTOOLCHAIN=local "$base"
buildah commit --quiet "$base" "docker.io/library/$stage" >/dev/null

go mod download
buildah bud --pull-never --layers=false --format docker --network host \
  --volume "$(go env GOMODCACHE):/go/pkg/mod" --tag quorate . >"$dir/build" 2>&1 || {
  cat "$dir/build" >&2
  fail "the image is not built"
}

server=$(buildah from --pull-never localhost/quorate)
JWT_SECRET=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')
run() { buildah run --network host --env "JWT_SECRET=$JWT_SECRET" "$server" -- "$@"; }
run /quorate --node-id=image --host=127.0.0.1 --port=0 --cluster-port=0 >"$dir/log" 2>&1 &
job=$!

for _ in $(seq 120); do
  ! grep -q 'node is ready' "$dir/log" || break
  kill -0 "$job" 2>/dev/null || fail "the server ended"
  sleep 0.5
done
pid=$(pgrep -f '^/quorate --node-id=image' | head -n 1) || fail "the server does not run"
user=$(sed -n 's/^Uid:\s*\([0-9]*\).*/\1/p' "/proc/$pid/status")
[ "$user" = 65532 ] || fail "the server runs as $user"
capabilities=$(sed -n 's/^CapEff:\s*//p' "/proc/$pid/status")
[ "$capabilities" = 0000000000000000 ] || fail "the server has capabilities $capabilities"
run /quorate ready | grep -qx ready || fail "the health check does not answer"
kill -TERM "$pid"
wait "$job" || fail "the server ended with $?"
grep -q stopped "$dir/log" || fail "the server did not drain"
echo "ok: built, ready, user 65532 without capabilities, healthy, drained"
