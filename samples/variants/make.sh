#!/usr/bin/env bash
# The dumps of this folder, one for each kind of attention: ./make.sh [FOLDER] writes them again.
set -euo pipefail
folder=${1:-$(dirname "$0")}
run() { attnctl run "the cat sat on the mat" "${@:2}" -o "$folder/$1.json"; }

run full
run causal --causal
run sliding-window --causal --window 2
run window --window 1,2
run block-local --block-local 2
run documents --documents 0,2,3 --causal --positions rope
run grouped-query --heads 4 --kv-heads 2 --d-model 8
run multi-query --heads 4 --kv-heads 1 --d-model 8
run softcap --softcap 1.5
run scale --scale 1
run qk-norm --qk-norm rms
run temperature --temperature 0.5,2
run alibi --positions alibi --causal --heads 2
run rotary --positions rope
run rotary-interleaved --positions rope --interleaved
run rotary-partial --positions rope --rotary-dims 2 --theta 1000000
run sinusoidal --positions sinusoidal
run gate --gate --heads 2
run cross --context "le chat"
run float16 --dtype float16
attnctl run -c "$(dirname "$0")/learned.yaml" -o "$folder/learned.json"

# The last word alone, after a cache of the others: the last row of the causal pass.
jq '[.steps | .Q, .K, .V | .data[0]] | {
      Q: [.[0][5:]], K: [.[1][5:]], V: [.[2][5:]], past_key: [.[1][:5]], past_value: [.[2][:5]]
    }' "$folder/causal.json" | attnctl attend - --causal -o "$folder/cache.json"

# The same with its keys in pages of four: the first four are in page 1, the others in page 0, behind which 9 stands.
jq 'def pages: [.[4:] + [[9, 9, 9, 9], [9, 9, 9, 9]], .[:4]] | map(map([.]));
    [.steps | .Q, .K, .V | .data[0]] | {
      Q: [.[0][5:]], key_pages: .[1] | pages, value_pages: .[2] | pages, page_table: [1, 0], key_lengths: 6
    }' "$folder/causal.json" | attnctl attend - --causal -o "$folder/pages.json"

# Six keys of which four are real.
jq '.steps | {Q: .Q.data, K: .K.data, V: .V.data, key_lengths: 4}' "$folder/full.json" |
  attnctl attend - -o "$folder/padding.json"

# Which key each query may see, given one by one.
jq '.steps | {Q: .Q.data, K: .K.data, V: .V.data, mask: [range(6) as $q | [range(6) as $k | ($q - $k) % 2 == 0]]}' \
  "$folder/full.json" | attnctl attend - -o "$folder/mask.json"
