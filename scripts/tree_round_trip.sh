#!/usr/bin/env bash
# A directory tree goes into a database and comes back the same, with a kill -9 in the middle.
#
#   scripts/tree_round_trip.sh [TREE] [DB_DIR_PARENT]
#
# Loads TREE (regular files; without it, a tree made here), kills the load about half way, loads again, exports, and
# compares. DB_DIR_PARENT is where the database and the export go, in a temporary directory that is removed at the end.
#   FIRN_BIN         the `firn` command to use; built in release mode if neither it nor target/release/firn is there
#   FIRN_TREE_FILES  how many files the tree made here has (default 3000)
set -euo pipefail
export LC_ALL=C
repository=$(cd "$(dirname "$0")/.." && pwd)
say() { echo "tree round trip: $*"; }
die() { echo "tree round trip: FAILED: $*" >&2; exit 1; }

firn=${FIRN_BIN:-${CARGO_TARGET_DIR:-$repository/target}/release/firn}
if [ ! -x "$firn" ]; then
  [ -z "${FIRN_BIN:-}" ] || die "FIRN_BIN=$FIRN_BIN is not a program"
  (cd "$repository" && cargo build --release -p firn-cli) </dev/null
fi

parent=${2:-${TMPDIR:-/tmp}}
[ -d "$parent" ] || die "$parent is no directory"
work=$(mktemp -d "$parent/firn-tree.XXXXXX")
loader=
clean_up() {
  [ -z "$loader" ] || kill -9 "$loader" 2>/dev/null || true
  rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# The same bytes on every run: a mebibyte from a Park-Miller generator, cut into files of 0 to 16 KiB. Some are empty,
# some lie deep, some have names that are not ASCII, and one has 4 MiB.
make_tree() {
  local tree=$1 files=$2
  mkdir -p "$tree"/plain "$tree"/deep/er/and/deeper "$tree/with space" "$tree"/ünïcode/日本
  awk -v tree="$tree" -v files="$files" '
    function next_number() { seed = (seed * 16807) % 2147483647; return seed }
    BEGIN {
      seed = 20261121; ORS = ""
      while (length(pool) < 1048576) {
        chunk = ""
        for (i = 0; i < 512; i++) chunk = chunk sprintf("%08x", next_number() * 2)
        pool = pool chunk
      }
      split("plain|deep|deep/er|deep/er/and/deeper|with space|ünïcode|ünïcode/日本", folders, "|")
      for (n = 0; n < files; n++) {
        name = tree "/" folders[n % 7 + 1] "/" (n % 5 ? "file-" : "fïrn-雪-") n
        size = n % 50 ? next_number() % 16385 : 0
        print substr(pool, next_number() % (length(pool) - 16384) + 1, size) > name
        close(name)
      }
      for (n = 0; n < 4; n++) print substr(pool, n * 1000 + 1) substr(pool, 1, n * 1000) > (tree "/large")
    }' </dev/null
}

tree=${1:-}
if [ -z "$tree" ]; then
  tree=$work/tree
  make_tree "$tree" "${FIRN_TREE_FILES:-3000}"
fi
[ -d "$tree" ] || die "$tree is no directory"
tree_bytes=$(find "$tree" -type f -printf '%s\n' | awk '{ sum += $1 } END { print sum + 0 }')
say "$(find "$tree" -type f | wc -l) files, $tree_bytes bytes"
db=$work/db

# Starts a load and kills it once the database holds one part in $1 of the tree. False if it ended by itself before.
killed_load() {
  local code=0
  "$firn" load "$db" --tree "$tree" </dev/null &
  loader=$!
  while bytes=$(du -s --block-size=1 "$db" 2>/dev/null | cut -f1); [ "${bytes:-0}" -lt $((tree_bytes / $1)) ]; do
    kill -0 "$loader" 2>/dev/null || break
  done
  kill -9 "$loader" 2>/dev/null || true
  wait "$loader" 2>/dev/null || code=$?
  loader=
  [ "$code" -eq 0 ] || [ "$code" -eq 137 ] || die "the first load, with exit code $code"
  [ "$code" -eq 137 ]
}

# A database that compresses well, or a fast one, may be done before half the tree's bytes are seen in it: kill earlier.
killed=
for part in 2 4 8 16; do
  rm -rf "$db"
  if killed_load "$part"; then
    killed=yes
    break
  fi
  say "the load ended before 1/$part of the bytes were seen"
done
[ -n "$killed" ] || die "every load ended before it could be killed: take a larger tree"
say "killed with $bytes bytes in the database"

"$firn" load "$db" --tree "$tree" </dev/null | tee "$work/second-load" || die "the second load"
skipped=$(grep -oiE 'skipped[: ]+[0-9]+' "$work/second-load" | grep -oE '[0-9]+' | tail -n 1 || true)
[ -n "$skipped" ] || die "the second load did not say 'skipped N'"
[ "$skipped" -gt 0 ] || die "the second load skipped nothing: what was acknowledged before the kill is gone"

"$firn" export "$db" --tree "$work/out" </dev/null || die "the export"
diff -rq "$tree" "$work/out" || die "what came back differs"
"$firn" verify "$db" </dev/null || die "verify"
say "identical; $skipped records survived the kill"
