//! Flags of SGLang, llama.cpp's llama-server and TGI, by name: what vLLM and tito call them, or why nothing takes their
//! place.
//!
//! Nothing is translated: a flag of the same sound may mean something else, so the person who starts the server is told.

use std::ffi::OsString;

const SGLANG: &str = "SGLang's";
const LLAMA_CPP: &str = "llama.cpp's";
const TGI: &str = "TGI's";

/// What stands in the place of another server's flag.
enum Instead {
    /// A flag that vLLM has too.
    Both(&'static str),
    /// A flag that vLLM does not have.
    Ours(&'static str),
    /// None, for this reason.
    Nothing(&'static str),
}

use Instead::{Both, Nothing, Ours};

/// Flags of one server that mean the same.
struct Row(&'static str, &'static [&'static str], Instead);

const KV_MEMORY: Instead = Ours("--kv-cache-memory BYTES, or --gpu-memory-utilization SHARE on a GPU");
const ALL_OR_ONE: Instead = Ours(
    "--kv-cache-memory BYTES where it is for all sequences, as in SGLang, and --max-model-len where it is for one, as in TGI",
);
const STEP_TOKENS: Instead = Both("--max-num-batched-tokens");
const ONE_PROCESS: Instead = Nothing("one process computes the whole model, so start one tito for each copy of it");
const NOT_PRUNED: Instead = Nothing("requests say how long a prompt and an answer may be, within --max-model-len");
const OF_REQUESTS: Instead =
    Nothing("requests say how tokens are sampled, and --override-generation-config says what holds without that");
const TEMPLATE_ALWAYS: Instead = Nothing("chat templates are always rendered as transformers renders them");
const BY_WEIGHTS: Instead = Nothing("--device says where the whole model is computed");
const OF_CONFIG: Instead = Nothing("the model's config.json says how its positions are rotated");

const ROWS: &[Row] = &[
    Row(SGLANG, &["--model-path"], Both("MODEL, the argument without a flag")),
    Row(SGLANG, &["--tokenizer-path"], Both("--tokenizer")),
    Row(SGLANG, &["--context-length"], Both("--max-model-len")),
    Row(SGLANG, &["--mem-fraction-static"], KV_MEMORY),
    Row("SGLang's and TGI's", &["--max-total-tokens"], ALL_OR_ONE),
    Row(SGLANG, &["--max-running-requests"], Both("--max-num-seqs")),
    Row(SGLANG, &["--max-queued-requests"], Ours("--max-waiting")),
    Row(SGLANG, &["--max-prefill-tokens", "--chunked-prefill-size"], STEP_TOKENS),
    Row(SGLANG, &["--random-seed"], Both("--seed")),
    Row(SGLANG, &["--tp", "--tp-size"], Both("--tensor-parallel-size, whose only value here is 1")),
    Row(SGLANG, &["--pp-size"], Both("--pipeline-parallel-size, whose only value here is 1")),
    Row(SGLANG, &["--dp", "--dp-size"], ONE_PROCESS),
    Row(SGLANG, &["--ep", "--ep-size"], ONE_PROCESS),
    Row(SGLANG, &["--nccl-init-addr", "--dist-init-addr"], ONE_PROCESS),
    Row(SGLANG, &["--disable-radix-cache"], Both("--no-enable-prefix-caching")),
    Row(SGLANG, &["--disable-cuda-graph"], Both("--enforce-eager")),
    Row(SGLANG, &["--enable-deterministic-inference"], Ours("--deterministic")),
    Row(SGLANG, &["--weight-version"], Nothing("a call that replaces weights names their version")),
    Row(SGLANG, &["--schedule-policy"], Both("--scheduling-policy")),
    Row(SGLANG, &["--schedule-conservativeness"], Nothing("a sequence that finds no room waits, and goes on later")),
    Row(SGLANG, &["--lora-paths"], Both("--lora-modules")),
    Row(SGLANG, &["--max-loras-per-batch"], Both("--max-loras")),
    Row(SGLANG, &["--log-requests"], Both("--enable-log-requests")),
    Row(SGLANG, &["--enable-metrics"], Nothing("/metrics is always served")),
    Row(SGLANG, &["--enable-memory-saver"], Both("--enable-sleep-mode")),
    Row(SGLANG, &["--grammar-backend"], Nothing("structured outputs are constrained in one way, exactly")),
    Row(SGLANG, &["--speculative-algorithm", "--speculative-num-draft-tokens"], Both("--speculative-config")),
    Row(LLAMA_CPP, &["-m"], Both("MODEL, the argument without a flag")),
    Row(LLAMA_CPP, &["-hf", "-hfr", "--hf-repo"], Both("MODEL, the argument without a flag")),
    Row(
        LLAMA_CPP,
        &["--hf-file", "-hff"],
        Nothing("MODEL may be the path of a .gguf file, and the hub gives directories"),
    ),
    Row(LLAMA_CPP, &["-c", "--ctx-size"], Both("--max-model-len")),
    Row(LLAMA_CPP, &["-ngl", "--n-gpu-layers", "--gpu-layers"], BY_WEIGHTS),
    Row(LLAMA_CPP, &["-ts", "--tensor-split", "-sm", "--split-mode", "-mg", "--main-gpu"], BY_WEIGHTS),
    Row(LLAMA_CPP, &["-np", "--parallel"], Both("--max-num-seqs")),
    Row(LLAMA_CPP, &["-t", "-tb", "--threads-batch"], Ours("--threads")),
    Row(LLAMA_CPP, &["-b", "--batch-size", "-ub"], STEP_TOKENS),
    Row(LLAMA_CPP, &["-a", "--alias"], Both("--served-model-name")),
    Row(LLAMA_CPP, &["-s"], Both("--seed")),
    Row(LLAMA_CPP, &["--jinja", "--no-jinja"], TEMPLATE_ALWAYS),
    Row(LLAMA_CPP, &["--chat-template-file"], Both("--chat-template")),
    Row(LLAMA_CPP, &["--reasoning-format"], Both("--reasoning-parser")),
    Row(LLAMA_CPP, &["--reasoning-budget"], Both("--default-chat-template-kwargs, by the name in the template")),
    Row(
        LLAMA_CPP,
        &["-ctk", "--cache-type-k", "-ctv", "--cache-type-v"],
        Nothing("keys and values have the type of the arithmetic, see --dtype"),
    ),
    Row(LLAMA_CPP, &["-fa", "--flash-attn"], Nothing("no flag chooses how attention is computed")),
    Row(LLAMA_CPP, &["-cb", "--cont-batching"], Nothing("sequences always join the step that is next")),
    Row(LLAMA_CPP, &["--mlock", "--mmap", "--no-mmap"], Nothing("weights are read into memory when the server starts")),
    Row(LLAMA_CPP, &["--rope-scaling", "--rope-freq-base", "--rope-scale", "--rope-freq-scale"], OF_CONFIG),
    Row(LLAMA_CPP, &["--predict", "--n-predict"], NOT_PRUNED),
    Row(LLAMA_CPP, &["--temp", "--top-k", "--top-p", "--min-p", "--repeat-penalty"], OF_REQUESTS),
    Row(LLAMA_CPP, &["-md", "--model-draft"], Both("--speculative-config, with the method draft_model")),
    Row(LLAMA_CPP, &["--lora"], Both("--enable-lora --lora-modules NAME=DIR")),
    Row(LLAMA_CPP, &["--metrics"], Nothing("/metrics is always served")),
    Row(LLAMA_CPP, &["--slots", "--no-slots"], Nothing("/metrics says how many sequences run and wait")),
    Row(LLAMA_CPP, &["--api-key-file"], Both("--api-key, or the variable VLLM_API_KEY")),
    Row(LLAMA_CPP, &["--ssl-key-file"], Both("--ssl-keyfile")),
    Row(LLAMA_CPP, &["--ssl-cert-file"], Both("--ssl-certfile")),
    Row(LLAMA_CPP, &["--embedding", "--embeddings"], Nothing("no embeddings are computed")),
    Row(LLAMA_CPP, &["--no-webui"], Nothing("there is no page for chats")),
    Row(TGI, &["--model-id"], Both("MODEL, the argument without a flag")),
    Row(TGI, &["--max-input-tokens", "--max-input-length"], NOT_PRUNED),
    Row(TGI, &["--num-shard", "--sharded"], ONE_PROCESS),
    Row(TGI, &["--quantize"], Both("--quantization, which names what the checkpoint is; tito quantises nothing")),
    Row(TGI, &["--hostname"], Both("--host")),
    Row(TGI, &["--max-concurrent-requests"], Ours("--max-waiting")),
    Row(TGI, &["--max-batch-prefill-tokens", "--max-batch-total-tokens"], STEP_TOKENS),
    Row(TGI, &["--max-batch-size"], Both("--max-num-seqs")),
    Row(TGI, &["--cuda-memory-fraction"], Both("--gpu-memory-utilization")),
    Row(TGI, &["--huggingface-hub-cache"], Both("--download-dir")),
    Row(TGI, &["--cors-allow-origin"], Both("--allowed-origins")),
];

/// Whether a flag, with its dashes, is one of another server's.
pub(super) fn is_known(flag: &str) -> bool {
    row(flag).is_some()
}

fn row(flag: &str) -> Option<&'static Row> {
    ROWS.iter().find(|Row(_, flags, _)| flags.contains(&flag))
}

/// One sentence about each of another server's flags among `arguments`, if the parser stumbled over one of them:
/// `unexpected` is what it did not know, which is `-n` where `-ngl` was given.
pub(super) fn answer(arguments: &[OsString], unexpected: &str) -> Option<String> {
    let names = arguments.iter().filter_map(|argument| argument.to_str()?.split('=').next());
    let mut given: Vec<&str> = names.filter(|name| name.starts_with('-') && is_known(name)).collect();
    let is_meant = |name: &&str| *name == unexpected || !name.starts_with("--") && name.starts_with(unexpected);
    given.iter().any(is_meant).then_some(())?;
    given.dedup();
    Some(given.into_iter().filter_map(sentence).collect::<Vec<_>>().join("; "))
}

fn sentence(flag: &str) -> Option<String> {
    let Row(server, _, instead) = row(flag)?;
    Some(match instead {
        Both(name) => format!("{flag} is {server}: tito and vLLM call it {name}"),
        Ours(name) => format!("{flag} is {server}: tito calls it {name}"),
        Nothing(reason) => format!("{flag} is {server}, and tito has no such flag: {reason}"),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::{super::foreign, *};

    fn known_flags() -> BTreeSet<String> {
        let mut command = crate::config::Arguments::command().mut_subcommand("serve", foreign::with_vllms_flags);
        foreign::names(command.find_subcommand_mut("serve").unwrap())
    }

    #[test]
    fn no_flag_of_another_server_is_one_that_is_taken_and_what_is_named_instead_is() {
        let known = known_flags();
        let mut seen = BTreeSet::new();
        for Row(_, flags, instead) in ROWS {
            for flag in *flags {
                assert!(!known.contains(*flag) && seen.insert(*flag), "{flag}");
            }
            let (Both(text) | Ours(text) | Nothing(text)) = instead;
            for named in text.split([' ', ',', ';']).filter(|word| word.starts_with("--")) {
                assert!(known.contains(named), "{named} for {flags:?}");
            }
        }
    }

    #[test]
    fn every_flag_of_another_server_that_was_given_is_answered() {
        let arguments = ["tito", "serve", "m", "--ctx-size=4096", "-ngl", "99", "--dtype", "auto"].map(OsString::from);
        for unexpected in ["--ctx-size", "-n"] {
            assert_eq!(
                answer(&arguments, unexpected).unwrap(),
                "--ctx-size is llama.cpp's: tito and vLLM call it --max-model-len; -ngl is llama.cpp's, and tito has no \
                 such flag: --device says where the whole model is computed"
            );
        }
        assert_eq!(answer(&arguments, "--no-such"), None);
        let sglang = ["--mem-fraction-static"].map(OsString::from);
        let said = answer(&sglang, "--mem-fraction-static").unwrap();
        assert!(said.starts_with("--mem-fraction-static is SGLang's: tito calls it --kv-cache-memory BYTES"), "{said}");
    }
}
