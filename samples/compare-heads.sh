#!/usr/bin/env bash
# How sure is each number of heads? Runs one sentence with 1, 2 and 4 heads and prints, for every
# head, the largest weight the last word gives to any word.
set -euo pipefail
sentence=${1:-I love AI}

for heads in 1 2 4; do
  attnctl run "$sentence" --heads "$heads" --json |
    jq -r --arg heads "$heads" '
      .tokens as $tokens
      | .steps.attention_weights.data
      | to_entries[]
      | (.value[-1] | to_entries | max_by(.value)) as $best
      | "\($heads) heads, head \(.key): \($tokens[-1]) -> \($tokens[$best.key]) \($best.value * 10000 | round / 10000)"'
done
