#!/usr/bin/env bash
# Real DAX in a virtual machine (tools/nvdimm-vm): firn-pm's tests on ext4 and on a /dev/dax device, processes that are
# killed, and power cuts behind acknowledged `Power` writes of every profile. Pools of the backend `emulated` on an
# ordinary file system are the control: if a cut takes nothing from them, it proves nothing about the others.
# Says why and ends well where the machine cannot run. Some 4 minutes without KVM.
set -euo pipefail
cd "$(dirname "$0")/.."
vm=$PWD/tools/nvdimm-vm work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "dax: $1" >&2; exit 1; }

if ! "$vm" --timeout 100 -- true 2>"$work/why"; then
  "$vm" --install >"$work/install" 2>&1 || { echo "dax: skipped: $(tail -n 1 "$work/install")"; exit 0; }
  code=0; "$vm" --timeout 100 -- true 2>"$work/why" || code=$?
  [ $code != 3 ] || { echo "dax: skipped: $(tail -n 1 "$work/why")"; exit 0; }
  [ $code = 0 ] || { cat "$work/why" >&2; fail "the virtual machine ends with $code"; }
fi

# Tests of all packages, with their programs, because that is what the steps before have built.
cargo test --workspace --no-run 2>&1 | tee "$work/build"
tests=$(sed -n 's/.*Executable.*(\(.*\/firn_pm-[0-9a-f]*\))$/\1/p' "$work/build")
[ -x "$tests" ] || tests=$PWD/$tests
bin=${CARGO_TARGET_DIR:-target}/debug
filters=(pool::tests::backends pool::tests::dax region::)

echo "--- firn-pm on ext4, dax=always; then processes that are killed"
"$vm" --timeout 200 -- env FIRN_DAX=/mnt/pmem FIRN_DAX_BADBLOCKS=/sys/block/pmem0/badblocks bash -euc '"$1" "${@:3}"; "$2/soak" --minutes 1 --suite kill9' \
  - "$tests" "$bin" "${filters[@]}"
echo "--- firn-pm on ext4, dax=inode: a new pool turns DAX on for its file"
"$vm" --mount dax=inode -- env FIRN_DAX=/mnt/pmem "$tests" pool::tests::dax
echo "--- firn-pm on a device"
"$vm" --mode devdax --size 256 -- env FIRN_DAX_DEVICE=/dev/dax0.0 "$tests" pool::tests::dax

# Runs a command on the same two media until it has printed $1 lines, which go to the acknowledgements; then the power
# is cut.
cut_after() {
  local lines=$1 code=0; shift
  "$vm" "${media[@]}" --cut "$lines" --timeout 200 -- "$@" >>"$work/acknowledged" || code=$?
  [ $code = 137 ] || fail "the writer ended with $code before the power was cut"
}

for mode in fsdax devdax; do
  memory=/mnt/pmem; [ $mode = fsdax ] || memory=/dev/dax0.0
  echo "--- power cuts, $memory"
  media=(--mode $mode --size 128 --image "$work/$mode.memory" --disk "$work/$mode.disk")
  : >"$work/acknowledged"
  look=("$bin/power_cut" check dax /mnt/disk $memory "$work/acknowledged")
  control=("$bin/power_cut" check emulated /mnt/disk $memory "$work/acknowledged")
  cut_after 301 "$bin/power_cut" write dax,emulated /mnt/disk $memory "$work/acknowledged"
  # The new lines go to the file that the guest reads at its start.
  cut_after 1303 bash -euc '"${@:1:6}"; exec "$1" write "${@:3}"' - "${look[@]}"
  code=0
  "$vm" "${media[@]}" -- bash -uc '"${@:1:6}" || exit 8; "${@:7}"; [ $? = 1 ] || exit 9' - \
    "${look[@]}" "${control[@]}" || code=$?
  case $code in
    0) ;;
    8) fail "an acknowledged row is gone";;
    9) fail "the control lost nothing: the power cuts prove nothing";;
    *) fail "the last look ended with $code";;
  esac
done
echo "dax: ok"
