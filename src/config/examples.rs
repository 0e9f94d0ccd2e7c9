//! What the help of a command ends with: command lines that work as they stand, and exit codes.

pub(super) const OF_ALL: &str = "\
Examples:
  tito serve HuggingFaceTB/SmolLM2-135M-Instruct     # download a model, serve it on port 8000
  tito doctor HuggingFaceTB/SmolLM2-135M-Instruct    # check whether this machine can do that
  tito serve --help                                  # see all flags";

pub(super) const OF_SERVE: &str = "\
Examples:
  tito serve HuggingFaceTB/SmolLM2-135M-Instruct
  tito serve Qwen/Qwen3-0.6B --port 8001 --max-model-len 4k --kv-cache-memory 2G
  tito serve Qwen/Qwen3-0.6B --enable-auto-tool-choice --tool-call-parser auto
  tito serve Qwen/Qwen3-0.6B --capture turns.db      # record every turn with its token ids";

pub(super) const OF_DOCTOR: &str = "\
Examples:
  tito doctor HuggingFaceTB/SmolLM2-135M-Instruct
  tito doctor Qwen/Qwen3-0.6B --device cpu --dtype float32 --max-model-len 4k";

pub(super) const OF_CONVERT: &str = "\
Examples:
  tito convert model.gguf model                        # a GGUF file to a directory
  tito convert model merged --merge adapter            # an adapter into a model";

pub(super) const OF_REPLAY: &str = "\
Examples:
  tito replay turns.db Qwen/Qwen3-0.6B
  tito replay turns.db Qwen/Qwen3-0.6B --trajectory run-7

Exit codes:
  0  every turn is the same: its ids, all bits of its log-probs, and its end
  1  a turn differs or cannot be replayed, there is nothing to replay, or something failed
  2  the command line is wrong
  3  everything that was compared is the same, but some turns were compared only in part";

pub(super) const OF_INSPECT: &str = "\
Examples:
  tito inspect turns.db
  tito inspect turns.db ./Qwen3-0.6B --port 8011       # with the texts of the ids";
