#!/usr/bin/env bash
# One pass over what a GPU is asked: the environment alone, with a policy, training, Brax's PPO beside it, and whether a plan holds. Under 8 minutes.
#   bash benchmarks/gpu.sh            PYTHON=interpreter  BRAX_SOURCE=checkout of Brax's main branch  OUT=folder for a copy of the rows
set -u
cd "$(dirname "$0")/.." || exit 1
python=${PYTHON:-python}
limit_s=470
started_s=$(date +%s)

plan() {
    echo "Measures, ant on the spring backend, at 4096, 1024 and 16384 environments (rows in benchmarks/results/train.jsonl, kind=gpu):"
    echo "  steps/s of the environment alone, random actions"
    echo "  steps/s with a policy of 64 x 64 choosing the actions"
    echo "  steps/s of training with the default settings, 20M steps (aim: 80 % of the rate with a policy)"
    echo "and at 4096:"
    echo "  steps/s of training with the networks and updates of Brax's PPO, and of Brax's PPO itself where there is one (aim: twice as fast)"
    echo "then, in what is left of the time (rows in benchmarks/results/plan_accuracy.jsonl):"
    echo "  planned against real wall time of a training of 50M steps with 4096 environments (aim: within 5 %)"
}

plan
if ! "$python" -c 'import jax, sys; sys.exit(jax.default_backend() != "gpu")' 2>/dev/null; then
    echo "No GPU that jax can use was found: nothing is measured."
    exit 0
fi
nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader
timeout "$limit_s" "$python" -m benchmarks.train gpu "$@"
code=$?
left_s=$((limit_s - $(date +%s) + started_s))
if [ "$code" -eq 0 ] && [ "$left_s" -gt 120 ]; then
    timeout "$left_s" "$python" -m benchmarks.plan_accuracy gpu
    code=$?
fi
[ "$code" -eq 124 ] && echo "Stopped after ${limit_s} s; what was measured is recorded, and another call measures the rest."
"$python" -c 'from benchmarks.harness import RESULTS; from benchmarks.tables import gpu, plans; print(gpu(RESULTS), plans(RESULTS, "gpu"), sep="\n\n")'
if [ -n "${OUT:-}" ]; then
    cp -r benchmarks/results "$OUT/"
fi
exit "$code"
