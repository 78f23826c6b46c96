#!/usr/bin/env bash
# attnctl itself as a target: samples/conform/attend.sh IN.npz OUT.npz
# It reads Q K V and what may come with them: a mask, a bias, key_lengths, a cache.
set -euo pipefail
exec attnctl attend "$1" --layout bhnd --step head_outputs -o "$2"
