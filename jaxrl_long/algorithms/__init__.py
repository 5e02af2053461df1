"""One file per algorithm, all with the same few functions."""
