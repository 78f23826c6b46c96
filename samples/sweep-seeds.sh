#!/usr/bin/env bash
# What does chance do? Draws the weights from several seeds and prints what each word pays to
# itself: one line a seed, one column a word.
set -euo pipefail
sentence=${1:-I love AI}
seeds=${2:-5}

printf 'seed\t%s\n' "$(tr ' ' '\t' <<< "$sentence")"
for seed in $(seq 0 $((seeds - 1))); do
  attnctl run "$sentence" --seed "$seed" --step attention_weights --json |
    jq -r --arg seed "$seed" '
      .steps.attention_weights.data[0] as $weights
      | [$seed, ($weights | keys[] as $i | $weights[$i][$i] * 1000 | round / 1000)]
      | @tsv'
done
