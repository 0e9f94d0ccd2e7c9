"""What `scripts/gpu-check` does: a running server on a GPU machine, checked and measured, within a budget of time."""
