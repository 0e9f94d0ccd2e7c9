"""A bench that drives a running server over HTTP; `benches/serve.py` starts it."""
