#!/usr/bin/env bash
# A student, from nothing to a graded exercise: look, ask why, take a lesson, fill in a sheet, hand it in.
# student.sh SHEET.json HAND-IN.json
set -euo pipefail
sheet=${1:?usage: student.sh SHEET.json HAND-IN.json}
handed_in=${2:?usage: student.sh SHEET.json HAND-IN.json}

attnctl run "I love AI" --heads 2 --step attention_weights           # see it
attnctl explain "I love AI" 'scores[love,AI]'                        # ask why
echo 'softmax: 0.39 0.24 0.24 0.14' | attnctl learn --lesson softmax --answers -

# fill in the scores of the sheet: Q Kᵀ, from the numbers that stand beside it, to its decimals
jq '.decimals as $d | .steps.Q.data as $q | .steps.K.data as $k
  | .steps.scores.data = [range($q | length) as $h
    | [$q[$h][] as $row | [$k[$h][] as $column
      | [range($row | length) as $i | $row[$i] * $column[$i]] | add * pow(10; $d) | round / pow(10; $d)]]]' \
  "$sheet" > "$handed_in"
attnctl check "$handed_in" | head -n 1                               # right?
