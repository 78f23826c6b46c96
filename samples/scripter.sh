#!/usr/bin/env bash
# Someone who scripts: numbers into jq, a sweep as one CSV, two runs compared, exit codes that decide.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

attnctl run "I love AI" --heads 2 --json |
  jq -r '.steps.attention_weights.data[0][0] | map(. * 1000 | round / 1000) | @tsv'
for seed in 0 1 2; do attnctl run "I love AI" --seed "$seed" --json | jq -c .; done |
  attnctl stats - --format csv | tail -n +2 | cut -d, -f1,3 | sed 's|\(\....\).*|\1|'

attnctl run "I love AI" --heads 2 -o "$folder/a.npz"
attnctl run last --causal -o "$folder/b.npz"
if attnctl diff "$folder/a.npz" "$folder/b.npz" > "$folder/diff.txt"; then echo same; else echo "exit $?"; fi
head -n 1 "$folder/diff.txt"
attnctl explain "$folder/a.npz" 'attention_weights[0,I,AI]' --json | jq '.value * 100 | round'
attnctl check "$folder/a.npz" --json | jq .agrees
