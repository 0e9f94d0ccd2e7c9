//! The formats of answers that TRL has no template of: each with a template that llama.cpp or vLLM carries, or with one of
//! our own that has the same marks. The table of docs/models.md says what became of their conversations.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{Arc, Mutex},
};

use expect_test::expect_file;
use tito::{
    parser::{ReasoningParser, ToolParser, reasoning_parser_of, tool_parser_of},
    tokenizer::Tokenizer,
};

use super::{
    super::{
        shapes::{ENDS, End, request, shapes, thinking_agent},
        verdicts::{Counts, Refusals},
    },
    family,
    kinds::{Kind, Vocabulary, closed_by, kind_of, smollm2},
    tokenizer,
};
use crate::it::{answer_formats, fidelity::recording};

/// A format with a template.
struct Format {
    /// As docs/models.md names it.
    family: &'static str,
    /// Below the fetched files, without its extension; a name alone is a template of our own.
    template: &'static str,
    kind: Kind,
}

const fn format(family: &'static str, template: &'static str, kind: Kind) -> Format {
    Format { family, template, kind }
}

const APERTUS: [&str; 13] = [
    "<s>",
    "<|system_start|>",
    "<|system_end|>",
    "<|developer_start|>",
    "<|developer_end|>",
    "<|user_start|>",
    "<|user_end|>",
    "<|assistant_start|>",
    "<|assistant_end|>",
    "<|inner_prefix|>",
    "<|inner_suffix|>",
    "<|tools_prefix|>",
    "<|tools_suffix|>",
];

const SEED: [&str; 6] =
    ["<seed:bos>", "<seed:eos>", "<seed:think>", "</seed:think>", "<seed:tool_call>", "</seed:tool_call>"];

const COHERE: [&str; 16] = [
    "<BOS_TOKEN>",
    "<|START_OF_TURN_TOKEN|>",
    "<|END_OF_TURN_TOKEN|>",
    "<|CHATBOT_TOKEN|>",
    "<|USER_TOKEN|>",
    "<|SYSTEM_TOKEN|>",
    "<|START_RESPONSE|>",
    "<|END_RESPONSE|>",
    "<|START_TEXT|>",
    "<|END_TEXT|>",
    "<|START_THINKING|>",
    "<|END_THINKING|>",
    "<|START_ACTION|>",
    "<|END_ACTION|>",
    "<|START_TOOL_RESULT|>",
    "<|END_TOOL_RESULT|>",
];

const MINIMAX: [&str; 4] = ["]~!b[", "]~b]", "[e~[", "]<]minimax[>["];

const GRANITE: [&str; 4] = ["<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>", "<|tool_call|>"];

const MISTRAL: [&str; 14] = [
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_CALLS]",
    "[ARGS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[THINK]",
    "[/THINK]",
];

const HY3: [&str; 10] = [
    "<｜hy_begin_of_sentence:opensource｜>",
    "<｜hy_User:opensource｜>",
    "<｜hy_Assistant:opensource｜>",
    "<｜hy_eos:opensource｜>",
    "<think:opensource>",
    "</think:opensource>",
    "<tool_calls:opensource>",
    "</tool_calls:opensource>",
    "<tool_responses:opensource>",
    "</tool_responses:opensource>",
];

const PHI4: Vocabulary =
    Vocabulary::SmolLm2 { special: &["<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|end|>"], rstrip: true };

const KIMI: [&str; 4] = ["<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"];

const HUNYUAN: [&str; 4] = ["<|startoftext|>", "<|extra_0|>", "<|extra_4|>", "<|eos|>"];

const GIGACHAT: [&str; 4] = ["<s>", "<|role_sep|>", "<|message_sep|>", "<|function_call|>"];

const LING: [&str; 3] = ["<role>", "</role>", "<|role_end|>"];

const LAGUNA: [&str; 8] =
    ["〈|EOS|〉", "<system>", "</system>", "<user>", "</user>", "<assistant>", "</assistant>", "<tool_response>"];

/// What ends a message of Cohere's that says `close` in front of the end of the turn.
const fn cohere(close: &'static str) -> Kind {
    Kind { bos: "<BOS_TOKEN>", close, last_close: close, ..closed_by("<|END_OF_TURN_TOKEN|>", smollm2(&COHERE), &[]) }
}

const fn with_bos(bos: &'static str, kind: Kind) -> Kind {
    Kind { bos, ..kind }
}

/// All of them, in the order of the page.
fn formats() -> Vec<Format> {
    let of = |name| kind_of(name).unwrap();
    let chatml = || closed_by("<|im_end|>", smollm2(&[]), &[]);
    let minimax = || with_bos("]~!b[", closed_by("[e~[", smollm2(&MINIMAX), &[]));
    let granite = || closed_by("<|end_of_text|>", smollm2(&GRANITE), &[]);
    let apertus = Kind {
        bos: "<s>",
        call_close: "<|tools_suffix|>",
        last_close: "",
        ..closed_by("<|assistant_end|>", smollm2(&APERTUS), &[])
    };
    let hy3 = Kind { last_close: "", ..closed_by("<｜hy_eos:opensource｜>", smollm2(&HY3), &[]) };
    let kimi_k3 = {
        let close = "<|close|>response<|sep|><|close|>message<|sep|><|end_of_msg|>";
        Kind { close, last_close: close, ..closed_by("<|end_of_msg|>", smollm2(&KIMI), &[]) }
    };
    vec![
        format("Apertus", "llama.cpp/Apertus-8B-Instruct", apertus),
        format(
            "Cohere Command A",
            "llama.cpp/CohereForAI-c4ai-command-r7b-12-2024-tool_use",
            cohere("<|END_RESPONSE|><|END_OF_TURN_TOKEN|>"),
        ),
        format("Cohere Command A", "llama.cpp/Cohere2MoE", cohere("<|END_TEXT|><|END_OF_TURN_TOKEN|>")),
        format("DeepSeek V3.1", "llama.cpp/deepseek-ai-DeepSeek-V3.1", of("deepseek")),
        format("DeepSeek V3.2", "llama.cpp/deepseek-ai-DeepSeek-V3.2", of("deepseek")),
        format("DeepSeek V4, V4.1", "llama.cpp/deepseek-ai-DeepSeek-V4", of("deepseek")),
        format("DeepSeek V4, V4.1", "llama.cpp/deepseek-ai-DeepSeek-V4-Flash-0731", of("deepseek")),
        format("ERNIE 4.5", "ernie45", chatml()),
        format("Gemma 4", "llama.cpp/google-gemma-4-31B-it", of("gemma4")),
        format("Gemma 4", "llama.cpp/google-gemma-4-31B-it-interleaved", of("gemma4_v2")),
        format(
            "GigaChat 3, 3.1",
            "llama.cpp/GigaChat3.1-10B-A1.8B",
            with_bos("<s>", closed_by("<|message_sep|>", smollm2(&GIGACHAT), &[])),
        ),
        format("Granite 3", "vllm/tool_chat_template_granite", granite()),
        format("Granite 3", "llama.cpp/ibm-granite-granite-3.3-2B-Instruct", granite()),
        format("Granite 4", "llama.cpp/ibm-granite-granite-4.0", granite()),
        format("Granite 4", "llama.cpp/ibm-granite-granite-4.1", granite()),
        format("Hunyuan A13B", "vllm/tool_chat_template_hunyuan_a13b", closed_by("<|eos|>", smollm2(&HUNYUAN), &[])),
        format("Hy 3 (Hunyuan)", "llama.cpp/tencent-Hy3", hy3),
        format("Kimi K3", "llama.cpp/Kimi-K3", kimi_k3),
        format(
            "Laguna (Poolside)",
            "llama.cpp/poolside-Laguna-S-2.1",
            closed_by("</assistant>", smollm2(&LAGUNA), &[]),
        ),
        format("LFM 2", "llama.cpp/LFM2-8B-A1B", of("lfm2")),
        format("LFM 2", "llama.cpp/LFM2.5-8B-A1B", of("lfm2")),
        format("Ling 3", "llama.cpp/inclusionai-ling-3.0-flash", closed_by("<|role_end|>", smollm2(&LING), &[])),
        format("MiniCPM 5", "llama.cpp/openbmb-MiniCPM5-1B", chatml()),
        format("MiniMax M2", "llama.cpp/MiniMax-M2", minimax()),
        format("MiniMax M3", "llama.cpp/MiniMax-M3", minimax()),
        format(
            "Mistral, Magistral",
            "llama.cpp/mistralai-Ministral-3-14B-Reasoning-2512",
            with_bos("<s>", closed_by("</s>", smollm2(&MISTRAL), &[])),
        ),
        format(
            "OLMo 3",
            "olmo3",
            Kind { eos: "<|endoftext|>", last_close: "<|endoftext|>", stops: &["<|im_end|>"], ..chatml() },
        ),
        format("Phi 4 mini", "vllm/tool_chat_template_phi4_mini", closed_by("<|end|>", PHI4, &[])),
        format(
            "Seed-OSS",
            "llama.cpp/ByteDance-Seed-OSS",
            with_bos("<seed:bos>", closed_by("<seed:eos>", smollm2(&SEED), &[])),
        ),
        format("Step 3.5, 5", "llama.cpp/StepFun3.5-Flash", chatml()),
    ]
}

fn source(directory: &Path, template: &str) -> String {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/templates");
    let folder = if template.contains('/') { directory } else { Path::new(own) };
    fs::read_to_string(folder.join(format!("{template}.jinja"))).unwrap()
}

/// All conversations of a format; what was neither exact nor refused with a reason is complained about.
fn check(format: &Format, template: &str, tokenizer: &Arc<Tokenizer>, complaints: &Mutex<Vec<String>>) -> Counts {
    let family = family(format.template, format.kind, template, tokenizer);
    let mut counts = Counts::default();
    let agent = thinking_agent();
    let agents = agent.0;
    for (shape, messages, fields) in shapes().into_iter().chain([agent]) {
        for end in ENDS {
            let not_shown = counts.not_shown;
            let request = request(&family, &messages, &fields, end);
            let complain = |text: &str| {
                complaints.lock().unwrap().push(format!("{}, {shape}, {end:?}: {text}", format.template));
            };
            if let Err(complaint) = counts.check(&family, request, Refusals::WithAnyReason) {
                complain(&complaint);
            }
            if shape == agents && end == End::Closed && counts.not_shown > not_shown {
                complain("is not shown");
            }
        }
    }
    counts
}

/// What `auto` chooses.
fn chosen(name: Option<&'static str>) -> String {
    name.map_or_else(String::new, |name| format!("`{name}`"))
}

/// The reasons for refusals that have columns of their own.
const REASONS: [&str; 3] = ["continues_closed_message", "continues_other_text", "messages_moved"];

fn row(format: &Format, source: &str, counts: &Counts, complaints: &Mutex<Vec<String>>) -> String {
    let calls = tool_parser_of(source).ok().map(ToolParser::name);
    let thoughts = reasoning_parser_of(source).ok().map(ReasoningParser::name);
    let (tools, reasoning) = answer_formats::parsers(format.family);
    for (name, own) in [(calls, tools), (thoughts, reasoning)] {
        if let Some(name) = name.filter(|name| !own.contains(name)) {
            complaints.lock().unwrap().push(format!("{}: `auto` chooses {name}", format.template));
        }
    }
    let from = match format.template.split_once('/') {
        Some((source, name)) => format!("{source}: `{name}`"),
        None => "our own".to_owned(),
    };
    let of_reason = |reason: &str| counts.refused.get(reason).map_or_else(String::new, ToString::to_string);
    let [closed, other_text, moved] = REASONS.map(of_reason);
    let others = counts.refused.iter().filter(|(reason, _)| !REASONS.contains(reason));
    let others: Vec<String> = others.map(|(reason, count)| format!("{count} `{reason}`")).collect();
    let columns = [
        format.family.to_owned(),
        from,
        chosen(calls),
        chosen(thoughts),
        (counts.exact + counts.exact_after_foreign_stop).to_string(),
        closed,
        other_text,
        moved,
        others.join(", "),
        counts.not_shown.to_string(),
    ];
    format!("| {} |\n", columns.join(" | "))
}

#[test]
fn templates_of_every_format_are_spliced_exactly_or_refused() {
    let Some(directory) = recording() else { return };
    let formats = formats();
    let mut jobs: BTreeMap<Vocabulary, Vec<usize>> = BTreeMap::new();
    for (index, format) in formats.iter().enumerate() {
        jobs.entry(format.kind.vocabulary).or_default().push(index);
    }
    let (jobs, complaints, rows) = (Mutex::new(jobs), Mutex::new(Vec::new()), Mutex::new(BTreeMap::new()));
    let work = || {
        while let Some((vocabulary, indices)) = { jobs.lock().unwrap().pop_first() } {
            let tokenizer = tokenizer(&directory, vocabulary);
            for index in indices {
                let source = source(&directory, formats[index].template);
                let counts = check(&formats[index], &source, &tokenizer, &complaints);
                let row = row(&formats[index], &source, &counts, &complaints);
                rows.lock().unwrap().insert(index, row);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let complaints = complaints.into_inner().unwrap();
    let rows: String = rows.into_inner().unwrap().into_values().collect();
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
    write_table(&rows);
}

fn write_table(rows: &str) {
    const MARKS: [&str; 2] = ["<!-- templates -->\n", "<!-- end of templates -->"];
    const HEADING: &str = "| family | template | calls | thoughts | exact | closed | other text | moved | others | not shown |\n|---|---|---|---|---|---|---|---|---|---|\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/models.md");
    let page = fs::read_to_string(path).unwrap();
    let [begin, end] = MARKS;
    let (before, rest) = page.split_once(begin).unwrap();
    let (_, after) = rest.split_once(end).unwrap();
    expect_file![path].assert_eq(&format!("{before}{begin}{HEADING}{rows}{end}{after}"));
}
