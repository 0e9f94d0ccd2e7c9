//! Which formats a model writes in, by the text of its chat template: it writes earlier calls and thoughts of the
//! conversation as the model does.
//!
//! Only marks count that one family alone writes. Where a template only mentions thoughts, as one does that takes them out
//! of earlier turns, nothing says whether an answer begins with them, so nothing is chosen.

use super::{ReasoningParser, ToolParser};

/// Behind the last one of these, a template begins the answer.
const PROMPT: &str = "add_generation_prompt";

/// Why no format is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoFormat {
    /// None of the marks that are known stands in the template.
    #[error("none of the marks that are looked for is in the chat template")]
    NoMarks,
    /// The marks are those of a format that is not read here.
    #[error("the chat template has the marks of {0}, which is not read here")]
    Unread(&'static str),
}

/// A format, and what of a template's text says so.
struct Rule {
    name: &'static str,
    /// All of it is there.
    has: &'static [&'static str],
}

const fn rule(name: &'static str, has: &'static [&'static str]) -> Rule {
    Rule { name, has }
}

/// The first that holds counts, so that what has the marks of another and more comes first.
const TOOLS: &[Rule] = &[
    rule("gemma4", &["<|tool_call>"]),
    rule("functiongemma", &["<start_function_call>"]),
    rule("minimax_m3", &["]<]minimax[>["]),
    rule("minimax_m2", &["<minimax:tool_call>"]),
    rule("seed_oss", &["<seed:tool_call>"]),
    rule("kimi_k2", &["<|tool_calls_section_begin|>"]),
    rule("kimi_k3", &["<|open|>", "<|close|>", "<|sep|>"]),
    rule("deepseek_v41", &["<｜DSML｜ calls>"]),
    rule("deepseek_v4", &["<｜DSML｜tool_calls>"]),
    rule("deepseek_v32", &["<｜DSML｜function_calls>"]),
    // Where the mark is a variable.
    rule("deepseek_v4", &["｜DSML｜", "'tool_calls>"]),
    rule("deepseek_v32", &["｜DSML｜", "'function_calls>"]),
    rule("deepseek_v3", &["<｜tool▁calls▁begin｜>", "```json"]),
    rule("deepseek_v31", &["<｜tool▁calls▁begin｜>"]),
    rule("cohere_command4", &["<|START_ACTION|>", "<|START_TEXT|>"]),
    rule("cohere_command3", &["<|START_ACTION|>"]),
    rule("openai", &["<|channel|>", "<|message|>"]),
    rule("mistral", &["[TOOL_CALLS]"]),
    rule("lfm2", &["<|tool_call_start|>"]),
    rule("hy_v3", &["<tool_calls>", "<tool_sep>"]),
    rule("hy_v3", &["<tool_calls:", "<tool_sep:"]),
    // Where the suffix is a variable.
    rule("hy_v3", &["<tool_calls{}>", "<tool_sep{}>"]),
    rule("hy_v4", &["<tool_calls>", "<arg_key>"]),
    rule("hy_v4", &["<tool_calls:", "<arg_key:"]),
    rule("k2_horizon", &["<ifm|tool_calls>"]),
    rule("dots", &["<dots_function_call>"]),
    rule("step3", &["<steptml:invoke"]),
    rule("minicpm5", &["<function name=\"", "<param name=\""]),
    rule("gigachat3", &["<|function_call|>", "<|message_sep|>"]),
    rule("gigachat3", &["function call<|role_sep|>"]),
    rule("plamo3", &["<|plamo:begin_tool_requests:plamo|>"]),
    rule("poolside_v1", &["<tool_call>", "<arg_key>", "<assistant>"]),
    rule("ling3", &["<arg_key>", "<role>"]),
    rule("glm47", &["<tool_call>{function-name}<arg_key>"]),
    rule("glm45", &["<tool_call>", "<arg_key>"]),
    rule("step3p5", &["<tool_call>\n<function=", "<|im_start|>tool_response"]),
    rule("mimo", &["<tool_call>\n<function=", ">value_1</parameter>"]),
    rule("qwen3_coder", &["<tool_call>\n<function="]),
    rule("granite4", &["<|start_of_role|>", "<tool_call>\n{\"name\""]),
    rule("granite", &["<|start_of_role|>", "<|tool_call|>"]),
    rule("apertus", &["<|tools_prefix|>"]),
    rule("hunyuan_a13b", &["<tool_calls>[{\"name\""]),
    rule("phi4_mini_json", &["functools[{\"name\": [function name]"]),
    rule("hermes", &["<tool_call>\n{\"name\""]),
    rule("llama4_json", &["<|python_start|>", "\"parameters\": "]),
    rule("llama3_json", &["{\"name\": function name, \"parameters\": dictionary"]),
    rule("pythonic", &["[func_name1(params_name1=params_value1"]),
];

/// Marks of thoughts that say all.
const THOUGHTS: &[Rule] = &[
    rule("gemma4", &["<|channel>", "<channel|>"]),
    rule("minimax_m3", &["<mm:think>"]),
    rule("seed_oss", &["<seed:think>"]),
    rule("mistral", &["[THINK]"]),
    rule("cohere_command4", &["<|START_THINKING|>", "<|START_TEXT|>"]),
    rule("cohere_command3", &["<|START_THINKING|>"]),
    rule("kimi_k3", &["<|open|>", "<|close|>", "<|sep|>"]),
    rule("openai_gptoss", &["<|channel|>", "<|message|>"]),
    rule("granite", &["Here is my thought process:"]),
    rule("k2_horizon", &["<ifm|think>"]),
    rule("plamo3", &["<|plamo:begin_think:plamo|>"]),
];

/// Families that write `<think>` and `</think>`, by what else they write, or by the switch that the template has.
const FAMILIES: &[Rule] = &[
    rule("minimax_m2", &["<minimax:tool_call>"]),
    rule("kimi_k2", &["<|tool_calls_section_begin|>"]),
    rule("deepseek_v41", &["<｜DSML｜ calls>"]),
    rule("deepseek_v4", &["<｜DSML｜tool_calls>"]),
    rule("deepseek_v4", &["｜DSML｜", "'tool_calls>"]),
    rule("deepseek_v3", &["｜DSML｜", "'function_calls>"]),
    rule("hy_v3", &["<tool_calls>", "<tool_sep>"]),
    rule("hy_v3", &["<tool_calls:", "<tool_sep:"]),
    // Where the suffix is a variable.
    rule("hy_v3", &["<tool_calls{}>", "<tool_sep{}>"]),
    rule("hy_v4", &["<tool_calls>", "<arg_key>"]),
    rule("hy_v4", &["<tool_calls:", "<arg_key:"]),
    rule("poolside_v1", &["<arg_key>", "<assistant>"]),
    rule("ling3", &["<arg_key>", "<role>"]),
    rule("step3p5", &["<tool_call>\n<function=", "<|im_start|>tool_response"]),
    rule("hunyuan_a13b", &["<|extra_0|>"]),
    rule("deepseek_v3", &["<｜tool▁calls▁begin｜>", "thinking"]),
    rule("glm45", &["<arg_key>", "enable_thinking"]),
    rule("nemotron_v3", &["truncate_history_thinking", "enable_thinking"]),
    rule("hunyuan_a13b", &["<answer>", "</answer>"]),
    rule("Granite 3.3", &["<|start_of_role|>", "<response>"]),
    rule("ernie45", &["<response>", "</response>"]),
    rule("qwen3", &["enable_thinking"]),
];

/// Families whose templates open `<think>` for every answer, without a switch.
const OPENED: &[Rule] = &[
    rule("deepseek_r1", &["<｜tool▁calls▁begin｜>"]),
    rule("step3", &["<steptml:invoke"]),
    rule("olmo3", &["<function_calls>"]),
    rule("qwen3", &["<think>"]),
];

/// The format of calls in whose marks `template` writes them.
///
/// # Errors
///
/// If there are no such marks, or those of a format that is not read.
pub fn tool_parser_of(template: &str) -> Result<ToolParser, NoFormat> {
    let template = unescaped(template);
    let rule = first(TOOLS, &template).ok_or(NoFormat::NoMarks)?;
    ToolParser::named(rule.name).ok_or(NoFormat::Unread(rule.name))
}

/// The way of thinking in whose marks `template` writes thoughts.
///
/// # Errors
///
/// If there are no such marks, or if they do not say whether an answer begins with thoughts.
pub fn reasoning_parser_of(template: &str) -> Result<ReasoningParser, NoFormat> {
    let template = unescaped(template);
    let found = first(THOUGHTS, &template)
        .or_else(|| {
            first(FAMILIES, &template)
                .filter(|_| ["</think>", "</think:", "</think{}>"].iter().any(|end| template.contains(end)))
        })
        .or_else(|| first(OPENED, &template).filter(|_| opens_thoughts(&template)));
    let name = found.ok_or(NoFormat::NoMarks)?.name;
    ReasoningParser::named(name).ok_or(NoFormat::Unread(name))
}

/// The marks that [`tool_parser_of`] looks for.
pub fn tool_marks() -> String {
    listed(TOOLS)
}

/// The marks that [`reasoning_parser_of`] looks for.
pub fn reasoning_marks() -> String {
    listed(THOUGHTS) + ", <think> where the template opens it for an answer or has a switch for it"
}

/// The first mark of each rule, as a template spells it.
fn listed(rules: &[Rule]) -> String {
    let mut marks: Vec<_> = rules.iter().map(|rule| rule.has[0].replace('\n', "\\n")).collect();
    marks.dedup();
    marks.join(", ")
}

fn first<'r>(rules: &'r [Rule], template: &str) -> Option<&'r Rule> {
    rules.iter().find(|rule| rule.has.iter().all(|mark| template.contains(mark)))
}

/// The text of a template with what its strings escape.
fn unescaped(template: &str) -> String {
    template.replace("\\n", "\n").replace("\\\"", "\"").replace("\\'", "'")
}

/// Whether the template leaves thoughts open where an answer begins.
fn opens_thoughts(template: &str) -> bool {
    let Some((_, prompt)) = template.rsplit_once(PROMPT) else { return false };
    let mut starts = prompt.split("<think>").skip(1);
    starts.any(|behind| !behind.trim_start().starts_with("</think>"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a template's text chooses, `-` for nothing.
    fn chosen(template: &str) -> (&'static str, &'static str) {
        let name = |error| match error {
            NoFormat::NoMarks => "-",
            NoFormat::Unread(name) => name,
        };
        let calls = tool_parser_of(template).map_or_else(name, ToolParser::name);
        (calls, reasoning_parser_of(template).map_or_else(name, ReasoningParser::name))
    }

    #[test]
    fn templates_of_the_repository_say_what_their_models_write() {
        let tiny = include_str!("../../../../tests/fixtures/tiny-model/tokenizer_config.json");
        for (name, template, formats) in [
            ("hermes", include_str!("../../../../tests/golden/template/hermes.jinja"), ("hermes", "-")),
            // It takes thoughts out of earlier turns; nothing says that an answer begins with some.
            ("think", include_str!("../../../../tests/golden/template/think.jinja"), ("-", "-")),
            ("default", include_str!("../../../../tests/golden/template/default.jinja"), ("-", "-")),
            ("tiny", tiny.replace("\\\\n", "\\n").as_str(), ("hermes", "-")),
        ] {
            assert_eq!(chosen(template), formats, "{name}");
        }
    }

    /// The lines of published templates that write calls, and those that begin an answer.
    #[test]
    fn marks_of_every_family_are_told_apart() {
        const SWITCH: &str = r"{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}
            {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}";
        const OPEN: &str = r"{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n<think>\n' }}{%- endif %}";
        const HERMES: &str = r#"{{- '<tool_call>\n{"name": "' }}"#;
        const CODER: &str = r"{{- '<tool_call>\n<function=' + tool_call.name + '>\n' }}";
        const GLM: &str = "<arg_key>{{ k }}</arg_key>\n<arg_value>";
        const DEEPSEEK: &str = r"'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + tool['type'] + '<｜tool▁sep｜>'";
        for (lines, formats) in [
            (vec![HERMES], ("hermes", "-")),
            (vec![HERMES, SWITCH], ("hermes", "qwen3")),
            (vec![HERMES, OPEN], ("hermes", "qwen3")),
            (vec![CODER, SWITCH], ("qwen3_coder", "qwen3")),
            (vec![CODER, "truncate_history_thinking", SWITCH], ("qwen3_coder", "nemotron_v3")),
            (vec!["<tool_call>{function-name}\n<arg_key>", GLM, SWITCH], ("glm45", "glm45")),
            (vec!["<tool_call>{function-name}<arg_key>", GLM, SWITCH], ("glm47", "glm45")),
            (vec!["<minimax:tool_call>", OPEN, "</think>"], ("minimax_m2", "minimax_m2")),
            (vec!["<|tool_calls_section_begin|>"], ("kimi_k2", "-")),
            (vec!["<|tool_calls_section_begin|>", "<think></think>"], ("kimi_k2", "kimi_k2")),
            (vec![DEEPSEEK, r"'\n' + '```json' + '\n'", OPEN], ("deepseek_v3", "deepseek_r1")),
            (vec![DEEPSEEK, "{%- if not thinking %}{{'</think>'}}{%- endif %}"], ("deepseek_v31", "deepseek_v3")),
            (vec![DEEPSEEK, "{% if '</think>' in content %}"], ("deepseek_v31", "-")),
            (vec!["'<|tool_call>call:'", r"'<|channel>thought\n'", "'<channel|>'"], ("gemma4", "gemma4")),
            (vec!["<start_function_call>call:"], ("functiongemma", "-")),
            (vec![r#""[TOOL_CALLS]""#], ("mistral", "-")),
            (vec!["[TOOL_CALLS]", "[THINK]", "[/THINK]"], ("mistral", "mistral")),
            (vec!["<|start|>assistant<|channel|>analysis<|message|>"], ("openai", "openai_gptoss")),
            (vec![r#"{"name": function name, "parameters": dictionary of"#], ("llama3_json", "-")),
            (vec!["Here is my thought process:", HERMES], ("hermes", "granite")),
            (vec!["<seed:tool_call>\n<function=", "<seed:think>"], ("seed_oss", "seed_oss")),
            (vec!["<|START_ACTION|>", "<|START_THINKING|>"], ("cohere_command3", "cohere_command3")),
            (vec!["<think>", "<answer>", "</answer>", "</think>"], ("-", "hunyuan_a13b")),
            (vec!["<function_calls>", OPEN], ("-", "olmo3")),
            (vec!["'｜DSML｜'", "'<' + dsml + 'function_calls>'", SWITCH], ("deepseek_v32", "deepseek_v3")),
            (vec!["'｜DSML｜'", "'<' + dsml + 'tool_calls>'", SWITCH], ("deepseek_v4", "deepseek_v4")),
            (vec!["<|start_of_role|>", HERMES], ("granite4", "-")),
            // No parser reads `<think>…</think><response>…</response>` of a model that thinks only if it is asked to.
            (
                vec!["<|start_of_role|>", "<|tool_call|>", "<think></think><response></response>"],
                ("granite", "Granite 3.3"),
            ),
            (vec!["<|tools_prefix|>"], ("apertus", "-")),
            (vec![r#"functools[{"name": [function name]"#], ("phi4_mini_json", "-")),
            (vec![r#"<|extra_0|><tool_calls>[{"name": "#, SWITCH], ("hunyuan_a13b", "hunyuan_a13b")),
            (vec!["<role>", "<tool_call>", GLM, SWITCH], ("ling3", "ling3")),
            (vec![CODER, r"<|im_start|>tool_response\n", OPEN, "</think>"], ("step3p5", "step3p5")),
            (vec!["'<tool_calls{}>'", "'<tool_sep{}>'", "'</think{}>'"], ("hy_v3", "hy_v3")),
            (vec!["<tool_calls>\n<tool_call>{{ name }}<tool_sep>", GLM, SWITCH], ("hy_v3", "hy_v3")),
            (vec!["<tool_calls:a1>\n<tool_call:a1>{{ name }}<tool_sep:a1>", "</think:a1>"], ("hy_v3", "hy_v3")),
            (vec!["<tool_calls><tool_call>{{ name }}", GLM, "<think></think>"], ("hy_v4", "hy_v4")),
            (vec!["<tool_calls:a1><tool_call:a1>{{ name }}<arg_key:a1>", "</think:a1>"], ("hy_v4", "hy_v4")),
            (vec!["<tool_call>", GLM, "<assistant>", SWITCH], ("poolside_v1", "poolside_v1")),
            (vec!["<ifm|tool_calls><ifm|tool_call>", "<ifm|think>"], ("k2_horizon", "k2_horizon")),
            (vec!["<dots_function_call>"], ("dots", "-")),
            (vec!["<steptml:invoke name=\"", OPEN], ("step3", "step3")),
            (vec![r#"<function name=\"{{ name }}\"><param name=\""#, SWITCH], ("minicpm5", "qwen3")),
            (vec!["<|message_sep|>", "<|function_call|>"], ("gigachat3", "-")),
            (vec![r"<|message_sep|>\n\nfunction call<|role_sep|>\n"], ("gigachat3", "-")),
            (vec!["<|plamo:begin_tool_requests:plamo|>", "<|plamo:begin_think:plamo|>"], ("plamo3", "plamo3")),
            (vec!["{{- '<think>' + message.thinking + '</think>' -}}", "add_generation_prompt"], ("-", "-")),
            (vec![], ("-", "-")),
        ] {
            assert_eq!(chosen(&lines.join("\n")), formats, "{lines:?}");
        }
    }

    #[test]
    fn what_is_looked_for_is_said() {
        let marks = tool_marks();
        assert!(marks.contains("<|tool_call>") && marks.contains("<tool_call>\\n<function="), "{marks}");
        assert!(reasoning_marks().contains("[THINK]"));
    }
}
