"""The per-session process chain: zygote, shim, worker, and the agent loop inside the worker."""
