"""The host's side: processes, folders, checkpoints, trackers and the loop that dispatches chunks."""
