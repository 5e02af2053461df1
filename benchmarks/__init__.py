"""One file per question; every answer is a row in `benchmarks/results/`."""
