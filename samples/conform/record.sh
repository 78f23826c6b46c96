#!/usr/bin/env bash
# What conform says of each library that is installed, recorded beside its script: samples/conform/record.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
for script in samples/conform/{torch,onnx,jax}_*.py; do
  command=$(sed -n 's/^\(attnctl conform .*\)/\1/p' "$script" | head -n 1)
  { echo "\$ $command"; eval "$command --save $(mktemp -d)" || true; } > "${script%.py}.txt"
done
