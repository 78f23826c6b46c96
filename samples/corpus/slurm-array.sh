#!/usr/bin/env bash
# Statistics of a corpus, a shard for each task of a Slurm array, and then the whole of them:
#   job=$(sbatch --parsable --array=1-100 samples/corpus/slurm-array.sh CORPUS FOLDER [OPTIONS of corpus run])
#   sbatch --dependency=afterok:$job --wrap 'attnctl corpus merge FOLDER/part-*.json -o FOLDER/whole.json'
# Of a large corpus, run shard 1/100 first, with --survey FOLDER/blocks.json here and there: tasks then read their own bytes alone.
# A task that is requeued begins its shard again; shards that are complete in FOLDER are kept.
#SBATCH --cpus-per-task=1
#SBATCH --requeue
set -euo pipefail
corpus=$1 folder=$2
shift 2
mkdir -p "$folder"
shard=$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT
attnctl corpus run "$corpus" --shard "$shard" -o "$folder/part-$SLURM_ARRAY_TASK_ID.json" "$@"
