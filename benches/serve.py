#!/usr/bin/env python3
"""Throughput and latency of an OpenAI-compatible server; see the section "serve.py" of benches/README.md."""

import sys

sys.dont_write_bytecode = True

from serve.__main__ import main  # noqa: E402

sys.exit(main())
