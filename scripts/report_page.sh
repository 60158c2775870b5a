#!/usr/bin/env bash
# The page that a benchmark writes is opened in a browser, and every figure is there with every series in it.
#
#   scripts/report_page.sh [PAGE]
#
# Without PAGE, a tiny benchmark makes one. The page's own script counts the figures whose series have an extent; here it
# is compared with the figures in the file, and the browser must not complain. A browser is needed: as root, on a system
# with apt, it is installed if it is missing.
#   FIRN_BENCH_DIR  where the databases of the benchmark go (default: a temporary directory)
set -euo pipefail
export LC_ALL=C
repository=$(cd "$(dirname "$0")/.." && pwd)
die() { echo "report page: FAILED: $*" >&2; exit 1; }

browser=$(command -v chromium || true)
if [ -z "$browser" ]; then
  [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null || die "this needs chromium: apt-get install chromium"
  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium; } </dev/null ||
    die "chromium cannot be installed: apt-get install chromium, then again"
  browser=$(command -v chromium) || die "chromium was installed and is not in PATH"
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/firn-page.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

page=${1:-}
figures_expected=
if [ -z "$page" ]; then
  page=$work/report.html
  databases=${FIRN_BENCH_DIR:-$work/databases}
  mkdir -p "$databases"
  (cd "$repository" && cargo run --release -p firn-cli -- bench ycsb --engines firn:classic --workloads load,a \
    --records 20000 --ops 20000 --dir "$databases" --html "$page" --json "$work/report.json") </dev/null
  # Four of each workload, and two of both.
  figures_expected=10
  if grep -q 'data-series="0"' "$page"; then die "a figure of a run that wrote and read has nothing to draw"; fi
fi
[ -s "$page" ] || die "$page is not there, or empty"
page=$(realpath "$page")

figures=$(grep -c '<figure ' "$page" || true)
[ "$figures" -gt 0 ] || die "$page has no figure"
[ "$figures" -eq "${figures_expected:-$figures}" ] || die "$page has $figures figures and not $figures_expected"

# A profile of its own: nothing of the caller's is read or left behind.
if ! timeout 120 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
  --user-data-dir="$work/profile" --enable-logging=stderr --dump-dom "file://$page" \
  >"$work/dom.html" 2>"$work/messages" </dev/null; then
  tail -n 20 "$work/messages" >&2
  die "$browser could not open $page"
fi
if grep ':CONSOLE' "$work/messages" >&2; then
  die "the browser complains about $page"
fi
drawn=$(grep -oE '<body[^>]* data-drawn="[0-9]+"' "$work/dom.html" | grep -oE '[0-9]+' || true)
[ -n "$drawn" ] || die "the page's script did not run: there is no data-drawn"
[ "$drawn" -eq "$figures" ] || die "$drawn of $figures figures are drawn with all their series"
echo "report page: $figures figures drawn, every series in each, and the browser has nothing to complain about"
