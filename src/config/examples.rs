//! What the help of a command ends with: command lines that work as they stand.

pub(super) const OF_ALL: &str = "\
Examples:
  tito serve HuggingFaceTB/SmolLM2-135M-Instruct     # from the hub, on port 8000
  tito doctor HuggingFaceTB/SmolLM2-135M-Instruct    # what this machine would do with it
  tito serve --help                                  # all flags";

pub(super) const OF_SERVE: &str = "\
Examples:
  tito serve HuggingFaceTB/SmolLM2-135M-Instruct
  tito serve Qwen/Qwen3-0.6B --port 8001 --max-model-len 4k --kv-cache-memory 2G
  tito serve Qwen/Qwen3-0.6B --enable-auto-tool-choice --tool-call-parser auto
  tito serve Qwen/Qwen3-0.6B --capture turns.db      # keep every turn, token by token";

pub(super) const OF_DOCTOR: &str = "\
Examples:
  tito doctor HuggingFaceTB/SmolLM2-135M-Instruct
  tito doctor Qwen/Qwen3-0.6B --device cpu --dtype float32 --max-model-len 4k";
