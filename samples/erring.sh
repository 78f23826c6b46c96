#!/usr/bin/env bash
# Someone who errs, and what is said each time: one line for each slip, and exit code 2.
set -uo pipefail

err() { "$@" > /dev/null; local code=$?; [ "$code" = 2 ] || { echo "exit $code: $*"; exit 1; }; }

err attnctl rnu "I love AI"
err attnctl run "I love AI" --heads 3 --d-model 4
err attnctl run "I love AI" --haeds 2
err attnctl run "I love AI" --step atention_weights
err attnctl run "I love AI" --head 5
err attnctl run -c india-is-great
err attnctl run nope.yaml
err attnctl explain "I love AI" 'scores[love,you]'
err attnctl check dmup
err attnctl check --about no-scail
err attnctl conform nowhere.py:attention
err attnctl learn --lesson sofmax
err attnctl run "I love AI" -o picture.bmp
