//! The table of docs/models.md that says how the answers of each family are read.

use std::{collections::BTreeSet, fs};

use expect_test::expect_file;
use tito::parser::{ForcedBy, ReasoningParser, ToolParser};

use crate::json::Value;

/// A family, with what its calls and its reasoning are read by.
type Family = (&'static str, &'static [&'static str], &'static [&'static str]);

const FAMILIES: &[Family] = &[
    ("Apertus", &["apertus"], &[]),
    ("Cohere Command A", &["cohere_command3", "cohere_command4"], &["cohere_command3", "cohere_command4"]),
    ("DeepSeek V3, R1", &["deepseek_v3"], &["deepseek_r1"]),
    ("DeepSeek V3.1", &["deepseek_v31"], &["deepseek_v3"]),
    ("DeepSeek V3.2", &["deepseek_v32"], &["deepseek_v3"]),
    ("DeepSeek V4, V4.1", &["deepseek_v4", "deepseek_v41"], &["deepseek_v4", "deepseek_v41"]),
    ("dots", &["dots"], &[]),
    ("ERNIE 4.5", &["ernie45"], &["ernie45"]),
    ("FunctionGemma", &["functiongemma"], &[]),
    ("Gemma 4", &["gemma4"], &["gemma4"]),
    ("GigaChat 3, 3.1", &["gigachat3"], &[]),
    ("GLM 4.5, 4.6", &["glm45"], &["glm45"]),
    ("GLM 4.7 and later", &["glm47"], &["glm47"]),
    ("gpt-oss", &["openai"], &["openai_gptoss"]),
    ("Granite 20B Function Calling", &["granite-20b-fc"], &[]),
    ("Granite 3", &["granite"], &["granite"]),
    ("Granite 4", &["granite4"], &["granite_thinking_parser"]),
    ("Holo 2", &["hermes"], &["holo2"]),
    ("Hunyuan A13B", &["hunyuan_a13b"], &["hunyuan_a13b"]),
    ("Hy 3 (Hunyuan)", &["hy_v3"], &["hy_v3"]),
    ("Hy 4 (Hunyuan)", &["hy_v4"], &["hy_v4"]),
    ("InternLM 2", &["internlm"], &[]),
    ("Jamba", &["jamba"], &[]),
    ("K2 Horizon", &["k2_horizon"], &["k2_horizon"]),
    ("Kimi K2", &["kimi_k2"], &["kimi_k2"]),
    ("Kimi K3", &["kimi_k3"], &["kimi_k3"]),
    ("Laguna (Poolside)", &["poolside_v1"], &["poolside_v1"]),
    ("LFM 2", &["lfm2"], &[]),
    ("Ling 3", &["ling3"], &["ling3"]),
    ("Llama 3", &["llama3_json"], &[]),
    ("Llama 4", &["llama4_json", "llama4_pythonic"], &[]),
    ("LongCat Flash", &["longcat"], &[]),
    ("MiMo", &["mimo"], &["mimo"]),
    ("MiniCPM 5", &["minicpm5"], &["qwen3"]),
    ("MiniMax M2", &["minimax_m2"], &["minimax_m2", "minimax_m2_append_think"]),
    ("MiniMax M3", &["minimax_m3"], &["minimax_m3"]),
    ("Mistral, Magistral", &["mistral"], &["mistral"]),
    ("Nemotron 3", &["qwen3_coder"], &["nemotron_v3", "nemotron"]),
    ("OLMo 3", &["olmo3"], &["olmo3"]),
    ("Phi 4 mini", &["phi4_mini_json"], &[]),
    ("PLaMo 3", &["plamo3"], &["plamo3"]),
    ("Python calls (ToolACE, Llama 3.2)", &["pythonic"], &[]),
    ("Hermes, Qwen 2.5, Qwen 3", &["hermes", "qwen3_json"], &["qwen3"]),
    ("Qwen 3 Coder, Qwen 3.5 and later", &["qwen3_coder", "qwen3_xml"], &["qwen3"]),
    ("Seed-OSS", &["seed_oss"], &["seed_oss"]),
    ("Step 3", &["step3"], &["step3"]),
    ("Step 3.5, 5", &["step3p5", "step5"], &["step3p5", "step5"]),
    ("xLAM", &["xlam"], &[]),
];

/// What the calls and the reasoning of a family of the page are read by.
pub(crate) fn parsers(family: &str) -> (&'static [&'static str], &'static [&'static str]) {
    let (_, tools, reasoning) = FAMILIES.iter().find(|known| known.0 == family).unwrap();
    (tools, reasoning)
}

/// What vLLM's own readers made of texts, by version.
const RECORDS: [(&str, &str); 4] =
    [("vllm.jsonl", "0.32"), ("tools.jsonl", "0.32"), ("more_tools.jsonl", "0.33"), ("reasoning.jsonl", "0.33")];

const MARKS: [&str; 2] = ["<!-- formats -->\n", "<!-- end of formats -->"];

/// Which versions of vLLM recorded texts of a parser.
fn compared(field: &str, name: &str) -> BTreeSet<&'static str> {
    let recorded = RECORDS.iter().filter(|(file, _)| {
        let path = format!("{}/tests/golden/parser/{file}", env!("CARGO_MANIFEST_DIR"));
        let record = fs::read_to_string(path).unwrap();
        record.lines().any(|line| Value::parse(line).unwrap().get(field).and_then(Value::as_str) == Some(name))
    });
    recorded.map(|(_, version)| *version).collect()
}

/// The parsers of a family as a cell, with the versions that their readers were compared with.
fn cell(field: &str, names: &[&str]) -> String {
    let shown = names.iter().map(|name| {
        let versions = compared(field, name).into_iter().collect::<Vec<_>>().join(", ");
        if versions.is_empty() { format!("`{name}`") } else { format!("`{name}` ({versions})") }
    });
    shown.collect::<Vec<_>>().join(", ")
}

fn forced(names: &[&str]) -> String {
    let ways: BTreeSet<&str> = names
        .iter()
        .map(|name| match ToolParser::named(name).unwrap().forced_by() {
            ForcedBy::OwnFormat => "in its own format",
            ForcedBy::BareJson => "as bare JSON",
            ForcedBy::Nothing => "not",
        })
        .collect();
    ways.into_iter().collect::<Vec<_>>().join(", ")
}

#[test]
fn the_page_has_every_format() {
    let of = |names: fn(&Family) -> &'static [&'static str]| {
        FAMILIES.iter().flat_map(names).copied().collect::<BTreeSet<_>>()
    };
    for (listed, known) in [
        (of(|family| family.1), ToolParser::names().collect()),
        (of(|family| family.2), ReasoningParser::names().collect::<BTreeSet<_>>()),
    ] {
        let missing: Vec<_> = known.difference(&listed).collect();
        assert!(missing.is_empty(), "add the family of each of {missing:?} to FAMILIES of this file");
        let gone: Vec<_> = listed.difference(&known).collect();
        assert!(gone.is_empty(), "no formats: {gone:?}");
    }
    let mut table =
        "| family | `--tool-call-parser` | a forced call | `--reasoning-parser` |\n|---|---|---|---|\n".to_owned();
    for (family, tools, reasoning) in FAMILIES {
        let cells = [cell("tool_parser", tools), forced(tools), cell("reasoning_parser", reasoning)];
        table.extend(["| ", family, " | ", &cells.join(" | "), " |\n"]);
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/models.md");
    let page = fs::read_to_string(path).unwrap();
    let [begin, end] = MARKS;
    let (before, rest) = page.split_once(begin).unwrap();
    let (_, after) = rest.split_once(end).unwrap();
    expect_file![path].assert_eq(&format!("{before}{begin}{table}{end}{after}"));
}
