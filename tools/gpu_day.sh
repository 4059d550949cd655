#!/usr/bin/env bash
# Record every full profile on this machine's GPU, what the course waits for most first, then renew the tables.
#
#   tools/gpu_day.sh                       what is not recorded yet; given again, it goes on where it was broken off
#   tools/gpu_day.sh --rehearse FOLDER     one step of every quick profile on the CPU, written to FOLDER
set -uo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python}

experiments=(
    shakespeare             # the loss of nanoGPT's character model
    mnist-image-transformer # the best that attention does on digits here
    mnist-pixels            # the claim of 79 % of digits read as 784 pixels
    bake-off-patches bake-off-pixels bake-off-text
    masked-images dates reversal
    shakespeare-lengths
    additive-2x2
    energy-wells-text energy-wells search-claims
)
record=(--profile full --device cuda)
search=(--profile full --device cuda --out results)
tables=(README.md results/README.md)
if [ "${1:-}" = --rehearse ]; then
    mkdir -p "${2:?a folder to write to}"
    record=(--profile quick --device cpu --steps 1 --seeds 1 --out "$2")
    search=(--profile quick --device cpu --steps 4 --trials 1 --out "$2" --storage "$2/search.journal")
    cp --parents "${tables[@]}" "$2"
    tables=("${tables[@]/#/$2/}")
fi

failed=()
states=$("$python" -m sciformer record --list) || exit
for name in "${experiments[@]}"; do
    state=$(grep -E "^$name +full " <<< "$states")
    echo "$(date '+%F %T')  ${state/ full /}"
    if [[ $state == *"not recorded yet"* ]]; then
        "$python" -m sciformer record "$name" "${record[@]}" || failed+=("$name")
    fi
done
echo "$(date '+%F %T')  search"
"$python" -m sciformer search "${search[@]}" || failed+=(search)
"$python" -m sciformer claims --write "${tables[@]}" || failed+=(tables)

if ((${#failed[@]})); then
    echo "failed: ${failed[*]}; the same command tries these again" >&2
    exit 1
fi
