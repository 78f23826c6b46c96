#!/usr/bin/env bash
# A teacher with a class: a sheet for each student of a roster, and, once they are handed in, their grades.
# teacher.sh make ROSTER.csv FOLDER     teacher.sh grade FOLDER
set -euo pipefail
task=${TASK:-example:i-love-ai}
blank=${BLANK:-scores}

case ${1:?usage: teacher.sh make ROSTER.csv FOLDER, or grade FOLDER} in
  make)
    attnctl exercise make "$task" --blank "$blank" --decimals 3 --students "$2" \
      -o "$3/sheets/" -o "$3/json/{name}.json" -o "$3/paper.html"
    ;;
  grade)
    attnctl exercise grade "$2"/*.json -o "$2/../grades.html" -o "$2/../grades.csv" -o - || test $? -eq 1
    ;;
esac
