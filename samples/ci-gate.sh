#!/usr/bin/env bash
# A gate for CI: fails when a matrix is no longer what it was. The first run records the dump, later
# runs compare with it; commit the dump beside the config.
set -euo pipefail
config=${1:?usage: ci-gate.sh CONFIG.yaml DUMP.json}
recorded=${2:?usage: ci-gate.sh CONFIG.yaml DUMP.json}

if [ ! -e "$recorded" ]; then
  attnctl run -c "$config" -o "$recorded"
  echo "recorded $recorded"
  exit
fi
attnctl run -c "$config" --json | attnctl diff "$recorded" -
