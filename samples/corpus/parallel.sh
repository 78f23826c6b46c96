#!/usr/bin/env bash
# Statistics of a corpus over the processors of one machine, with GNU parallel (xargs where it is missing):
#   samples/corpus/parallel.sh CORPUS SHARDS FOLDER [OPTIONS of attnctl corpus run, like --model DIR]
# Shards that are complete in FOLDER are kept: after an interrupt the same line goes on.
set -euo pipefail
corpus=$1 shards=$2 folder=$3
shift 3
mkdir -p "$folder"
if command -v parallel >/dev/null; then
  seq "$shards" | parallel --halt soon,fail=1 \
    attnctl corpus run "$corpus" --shard "{}/$shards" -o "$folder/part-{}.json" "$@"
else
  seq "$shards" | xargs -P "$(nproc)" -I '{}' \
    attnctl corpus run "$corpus" --shard "{}/$shards" -o "$folder/part-{}.json" "$@"
fi
attnctl corpus merge "$folder"/part-*.json -o "$folder/whole.json"
