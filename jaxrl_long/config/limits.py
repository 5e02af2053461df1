"""Largest numbers, and names, that several settings allow."""

# Ages and indices on the device are int32.
MAX_INT32 = 2**31 - 1
MAX_ENVS = 2**20
MAX_STEPS = 10**15
PRECISIONS = ("default", "high", "highest")
