//! Flags of vLLM that tito does not have, on tito's command line: hidden from its help, understood by its parser.

use std::collections::BTreeSet;

use clap::{Arg, ArgAction, ArgMatches, Command, parser::ValueSource};

use super::vllm_flags::{self, Foreign, Meaning, Takes};

/// Adds them, and for every switch a `--no-…` and, as in vLLM (`EnableDisableAction`), a `--disable-…` for an
/// `--enable-…` and the reverse; of flags that are given twice, the last one counts.
pub(super) fn with_vllms_flags(mut command: Command) -> Command {
    command = command.args_override_self(true);
    let own: BTreeSet<String> = names(&command);
    let removed: BTreeSet<&str> =
        vllm_flags::all().filter(|flag| flag.meaning == Meaning::Removed).map(|flag| flag.name).collect();
    for flag in vllm_flags::all().filter(|flag| !own.contains(&format!("--{}", flag.name))) {
        let arg = Arg::new(flag.name).long(flag.name).hide(true);
        command = command.arg(match flag.takes {
            Takes::Nothing => arg.action(ArgAction::SetTrue),
            Takes::Value => arg.num_args(1).allow_hyphen_values(true),
            Takes::Values => arg.num_args(1..).action(ArgAction::Append),
        });
    }
    let switches: Vec<(String, String)> = command
        .get_arguments()
        .filter(|arg| matches!(arg.get_action(), ArgAction::SetTrue))
        .filter_map(|arg| Some((arg.get_id().to_string(), arg.get_long()?.to_owned())))
        .collect();
    let taken = names(&command);
    for (id, long) in switches {
        let off = format!("no-{long}");
        let mut arg = Arg::new(off.clone()).long(off.clone()).hide(true).action(ArgAction::SetTrue);
        let inverse = inverse(&long).filter(|inverse| !taken.contains(&format!("--{inverse}")));
        // What vLLM has no more, it has in no other spelling.
        if let Some(inverse) = inverse.filter(|_| !removed.contains(long.as_str())) {
            arg = arg.alias(inverse);
        }
        command = command.arg(arg.overrides_with(&id)).mut_arg(&id, |arg| arg.overrides_with(&off));
    }
    command
}

/// The other spelling that switches a flag off.
pub(super) fn inverse(flag: &str) -> Option<String> {
    let enabled = flag.strip_prefix("enable-").map(|rest| format!("disable-{rest}"));
    enabled.or_else(|| flag.strip_prefix("disable-").map(|rest| format!("enable-{rest}")))
}

/// All flags of a command, with their dashes.
pub(super) fn names(command: &Command) -> BTreeSet<String> {
    let longs = command.get_arguments().flat_map(|arg| {
        let aliases = arg.get_all_aliases().unwrap_or_default();
        arg.get_long().into_iter().chain(aliases).map(|name| format!("--{name}")).collect::<Vec<_>>()
    });
    longs.chain(["--help".to_owned()]).collect()
}

/// What is to be said about the flags that were given: a warning, or why the server does not start.
pub(super) fn judge(matches: &ArgMatches) -> Result<Option<String>, String> {
    let (mut idle, mut removed, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for flag in vllm_flags::all().filter(|flag| matches.try_contains_id(flag.name).is_ok()) {
        let off = format!("no-{}", flag.name);
        let is_off = flag.takes == Takes::Nothing && is_on_command_line(matches, &off);
        if !is_off && !is_on_command_line(matches, flag.name) {
            continue;
        }
        let shown = if is_off { format!("--{off}") } else { format!("--{}", flag.name) };
        match &flag.meaning {
            Meaning::NoEffect => idle.push(shown),
            Meaning::Removed => removed.push(shown),
            // Off is what tito does.
            Meaning::Only { .. } if is_off => {}
            // They are respelt before.
            Meaning::Key => {}
            Meaning::Only { values, idle: without_effect, reason } => {
                let wrong = values_of(matches, flag).into_iter().find(|value| !values.contains(&value.as_str()));
                match wrong {
                    Some(value) if without_effect.contains(&value.as_str()) => idle.push(format!("{shown} {value}")),
                    Some(value) => refused.push(refusal(&shown, &value, values, reason)),
                    None if flag.takes == Takes::Nothing => refused.push(refusal(&shown, "", values, reason)),
                    None => {}
                }
            }
        }
    }
    if !refused.is_empty() {
        return Err(refused.join("; "));
    }
    let idle = (!idle.is_empty()).then(|| format!("without effect here: {}", idle.join(", ")));
    let removed = (!removed.is_empty()).then(|| format!("no longer flags of vLLM: {}", removed.join(", ")));
    let said: Vec<String> = idle.into_iter().chain(removed).collect();
    Ok((!said.is_empty()).then(|| format!("ignored flags, {}", said.join("; "))))
}

fn is_on_command_line(matches: &ArgMatches, id: &str) -> bool {
    matches.value_source(id) == Some(ValueSource::CommandLine)
}

fn values_of(matches: &ArgMatches, flag: &Foreign) -> Vec<String> {
    if flag.takes == Takes::Nothing {
        return Vec::new();
    }
    matches.get_many::<String>(flag.name).into_iter().flatten().cloned().collect()
}

fn refusal(flag: &str, value: &str, neutral: &[&str], reason: &str) -> String {
    // Of commands that say what to do instead. What is no number is no part of a command.
    let count = if value.parse::<u32>().is_ok() { value } else { "N" };
    let reason = reason.replace("{count}", count);
    let flag = if value.is_empty() { flag.to_owned() } else { format!("{flag} {value}") };
    match neutral.iter().find(|value| !value.is_empty()) {
        Some(value) => format!("{flag} is not supported: {reason}; leave it out, or pass {value}"),
        None => format!("{flag} is not supported: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(line: &str) -> Result<Option<String>, String> {
        let command = with_vllms_flags(Command::new("serve").arg(Arg::new("port").long("port").num_args(1)));
        judge(&command.try_get_matches_from(line.split_whitespace()).unwrap_or_else(|error| panic!("{error}")))
    }

    #[test]
    fn flags_without_effect_are_named_in_one_warning() {
        assert_eq!(judged("serve --port 1"), Ok(None));
        let warning = "ignored flags, without effect here: --enforce-eager, --no-enable-prefix-caching, \
                       --block-size, --cudagraph-capture-sizes; no longer flags of vLLM: \
                       --disable-async-output-proc, --swap-space";
        let line = "serve --disable-async-output-proc --enforce-eager --block-size 16 --swap-space 4 \
                    --no-enable-prefix-caching --cudagraph-capture-sizes 1 2 4";
        let judged = judged(line).unwrap().unwrap();
        let sorted =
            |text: &str| text.split([',', ';', ':']).map(str::trim).map(str::to_owned).collect::<BTreeSet<_>>();
        assert_eq!(sorted(&judged), sorted(warning), "{judged}");
    }

    #[test]
    fn what_cannot_be_honoured_is_refused_unless_it_changes_nothing() {
        for line in [
            "serve --tensor-parallel-size 1 --quantization-config {} --task generate",
            "serve --scheduling-policy fcfs --load-format auto --hf-overrides {} --worker-extension-cls=",
            "serve --mamba-cache-dtype auto --mamba-ssm-cache-dtype float32 --no-enable-mamba-cache-stochastic-rounding",
            "serve --no-guided-decoding-disable-any-whitespace",
            "serve --max-num-active-seqs None --mm-encoder-attn-dtype none --mm-encoder-fp8-scale-path=",
            "serve --device-ids None --middleware [] --sleep-preserve-parameter-names=[] --logits-processors []",
            "serve --device-ids 0 --max-num-queued-tokens None --per-request-spec-decode-metrics none --no-enable-fault-tolerance",
        ] {
            assert_eq!(judged(line), Ok(None), "{line}");
        }
        for (line, words) in [
            ("serve --tensor-parallel-size 2", "--tensor-parallel-size 2 is not supported: one process"),
            ("serve --quantization-config {\"a\":1}", "pass None"),
            ("serve --fully-sharded-loras", "--fully-sharded-loras is not supported: tito applies adapters"),
            ("serve --logits-processors a.b:C d.e:F", "a.b:C is not supported"),
            ("serve --lora-target-modules a b", "a"),
            ("serve --weight-transfer-config {\"backend\":\"nccl\"}", "--enable-lora"),
            ("serve --kv-transfer-config {\"kv_connector\":\"a\"}", "does not transfer keys and values"),
            (
                "serve --mamba-cache-dtype float16",
                "keeps recurrent states in float32 and rounds nothing of them; leave it out, or pass float32",
            ),
            ("serve --mamba-ssm-cache-dtype bfloat16", "tito keeps recurrent states in float32"),
            ("serve --enable-mamba-cache-stochastic-rounding", "tito keeps recurrent states in float32"),
            (
                "serve --guided-decoding-disable-any-whitespace",
                "pass --structured-outputs-config.disable_any_whitespace=true",
            ),
            (
                "serve --guided-decoding-disable-additional-properties",
                "pass --structured-outputs-config.disable_additional_properties=true",
            ),
            ("serve --collect-detailed-traces all", "no times of modules inside the model"),
            ("serve --max-num-queued-tokens 1000", "pass --max-num-queued-reqs"),
            ("serve --max-num-active-seqs 8", "pass --max-num-seqs"),
            ("serve --mm-encoder-attn-dtype fp8", "images are computed in the type of the arithmetic"),
            ("serve --mm-encoder-fp8-scale-path a.json", "images are computed in the type of the arithmetic"),
            ("serve --mm-encoder-fp8-scale-save-path a.json", "images are computed in the type of the arithmetic"),
            ("serve --device-ids 1", "choose it with --device cuda:N; leave it out, or pass 0"),
            ("serve --logging-config {\"a\":1}", "choose its lines with --log"),
            ("serve --custom-histogram-buckets {\"a\":[1]}", "the buckets of /metrics are fixed"),
            ("serve --enable-fault-tolerance", "let a supervisor restart it"),
            ("serve --sleep-preserve-parameter-names a*", "drops all weights"),
            ("serve --scheduler-cls a.B", "it names Python code"),
            ("serve --h11-max-header-count 9", "pass 256"),
            ("serve --load-format tensorizer", "tito loads weights from safetensors or GGUF only"),
            ("serve --per-request-spec-decode-metrics summary", "responses do not say which drafts were accepted"),
            ("serve --tokens-only", "--tokens-only is not supported: tito always serves text"),
        ] {
            let reason = judged(line).unwrap_err();
            assert!(reason.contains(words), "{line}: {reason}");
        }
    }

    #[test]
    fn another_way_to_read_the_same_weights_is_named_in_the_warning() {
        for format in ["runai_streamer", "fastsafetensors", "instanttensor"] {
            let said = format!("ignored flags, without effect here: --load-format {format}");
            assert_eq!(judged(&format!("serve --load-format {format}")), Ok(Some(said)));
        }
    }

    #[test]
    fn data_parallelism_is_refused_with_the_commands_that_do_it() {
        for flag in ["--data-parallel-size", "--data-parallel-size-local"] {
            let reason = judged(&format!("serve {flag} 4")).unwrap_err();
            for words in [
                &format!("{flag} 4 is not supported: one process computes the whole model on one device"),
                "for gpu in $(seq 0 $((4 - 1))); do CUDA_VISIBLE_DEVICES=$gpu tito serve MODEL --port $((8100 + gpu)) & done; \
                 vllm-router --port 8000 --policy consistent_hash \
                 --worker-urls $(seq -f http://localhost:%.0f 8100 $((8099 + 4)))",
                "leave it out, or pass 1",
            ] {
                assert!(reason.contains(words), "{reason}");
            }
            assert_eq!(judged(&format!("serve {flag} 1")), Ok(None));
            // A command that somebody copies has nothing in it that came from elsewhere.
            let reason = judged(&format!("serve {flag} $(reboot)")).unwrap_err();
            assert!(reason.contains("seq 0 $((N - 1))") && !reason[flag.len() + 10..].contains("reboot"), "{reason}");
        }
        for line in ["--data-parallel-rank 1", "--data-parallel-start-rank 2", "--data-parallel-external-lb"] {
            let reason = judged(&format!("serve {line}")).unwrap_err();
            assert!(reason.contains("start each server without flags for ranks"), "{reason}");
        }
        assert_eq!(
            judged("serve --data-parallel-size 1 --data-parallel-rank 0 --no-data-parallel-hybrid-lb"),
            Ok(None)
        );
    }

    #[test]
    fn every_switch_has_its_inverse_and_the_last_word_counts() {
        let switches =
            vllm_flags::all().filter(|flag| flag.takes == Takes::Nothing && flag.meaning != Meaning::Removed);
        let inverses = switches.filter_map(|flag| Some((flag, inverse(flag.name)?)));
        for (Foreign { name, .. }, inverse) in inverses {
            // What would be refused is not, once it is switched off.
            let off =
                judged(&format!("serve --{name} --{inverse}")).unwrap_or_else(|error| panic!("{inverse}: {error}"));
            assert_eq!(off, judged(&format!("serve --no-{name}")).unwrap(), "{inverse}");
            assert_eq!(judged(&format!("serve --{inverse} --{name}")), judged(&format!("serve --{name}")), "{inverse}");
        }
        assert_eq!(judged("serve --enable-sliding-window"), Ok(None));
        assert!(judged("serve --disable-sliding-window").is_err());
    }

    #[test]
    fn no_flag_is_told_twice() {
        let mut names: Vec<&str> = vllm_flags::all().map(|flag| flag.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }
}
