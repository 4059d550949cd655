#!/usr/bin/env bash
# Record every full profile on this machine's GPU, what the course waits for most first, then renew the tables.
#
#   tools/gpu_day.sh                       what is not recorded yet; given again, it goes on where it was broken off
#   tools/gpu_day.sh --rehearse FOLDER     one step of every quick profile on the CPU, written to FOLDER
set -uo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python}

experiments=(
    nanogpt                 # the loss of nanoGPT's character model, by its recipe and by ours
    mnist-image-transformer # the best that attention does on digits here
    mnist-pixels            # the claim of 79 % of digits read as 784 pixels
    bake-off-patches bake-off-pixels bake-off-text
    masked-images dates reversal
    shakespeare shakespeare-lengths
    additive-2x2
    energy-wells-text energy-wells search-claims sharp-start
)
profile=full folder=results
record=(--device cuda) search=(--device cuda)
tables=(docs/measured.md results/README.md)
if [ "${1:-}" = --rehearse ]; then
    mkdir -p "${2:?a folder to write to}"
    profile=quick folder=$2
    record=(--device cpu --steps 1 --seeds 1)
    search=(--device cpu --steps 4 --trials 1 --storage "$folder/search.journal")
    cp --parents "${tables[@]}" "$folder"
    tables=("${tables[@]/#/$folder/}")
fi

states=$("$python" -m sciformer record --list --out "$folder") || exit
failed=()
for name in "${experiments[@]}" search; do
    echo "$(date '+%F %T')  $(sed -n "s/^$name  *full  */$name: /p" <<< "$states")" # with what is predicted of it
    if ! grep -E "^$name +$profile " <<< "$states" | grep -Eq "not recorded yet|DAMAGED"; then
        echo "$name is recorded in $folder"
    elif [ "$name" = search ]; then
        "$python" -m sciformer search --profile "$profile" --out "$folder" "${search[@]}" || failed+=(search)
    else
        "$python" -m sciformer record "$name" --profile "$profile" --out "$folder" "${record[@]}" || failed+=("$name")
    fi
done

# Tables that are renewed change the commit's name to "dirty", and runs that were kept under the old one would begin anew.
if ((${#failed[@]})); then
    echo "failed: ${failed[*]}; the same command tries these again, and renews the tables when all is recorded" >&2
    exit 1
fi
"$python" -m sciformer claims --write "${tables[@]}"
