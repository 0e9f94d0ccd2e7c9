//! Imitations of the templates of model families, written for these tests: only the traits that decide a splice.

use tito::{TokenId, model::EosTokens, tokenizer::AddedToken};

use super::Model;

/// A kind of template with what a splice of it has to look like.
pub(crate) struct Family {
    pub(crate) name: String,
    pub(crate) model: Model,
    /// What closes a message that says something, with another after it or a generation prompt.
    pub(crate) close: &'static str,
    /// What closes it at the very end.
    pub(crate) last_close: &'static str,
    /// What closes a message that calls a tool, after the template's own end of the call.
    pub(crate) call_close: &'static str,
    /// What the model itself ends a turn with, where that is not the close.
    pub(crate) stop: Option<&'static str>,
    /// A token that ends a generation too.
    pub(crate) foreign: &'static str,
}

/// The first id that the tiny tokenizer leaves free.
const FREE: TokenId = 326;

struct Traits<'a> {
    template: &'a str,
    /// Special tokens; the first is the end-of-sequence token.
    special: &'a [&'a str],
    /// Further tokens of the generation configuration.
    stops: &'a [&'a str],
    rstrip: bool,
}

fn model(traits: &Traits<'_>) -> Model {
    let mut tokenizer = super::tiny_tokenizer();
    let mut id = FREE;
    let mut added = Vec::new();
    for token in traits.special {
        if tokenizer.id_of(token).is_none() {
            added.push(AddedToken { rstrip: traits.rstrip, ..AddedToken::verbatim(id, *token, true) });
            id += 1;
        }
    }
    tokenizer = tokenizer.with_added_tokens(&added).unwrap();
    let id_of = |token: &&str| tokenizer.id_of(token).unwrap();
    let eos =
        EosTokens { primary: traits.special.first().map(id_of), others: traits.stops.iter().map(id_of).collect() };
    Model::new(tokenizer, traits.template, eos)
}

fn chatml(name: &str, template: &str) -> Family {
    Family {
        name: name.to_owned(),
        model: model(&Traits { template, special: &["<|im_end|>"], stops: &["<|endoftext|>"], rstrip: false }),
        close: "<|im_end|>",
        last_close: "<|im_end|>",
        call_close: "<|im_end|>",
        stop: None,
        foreign: "<|endoftext|>",
    }
}

macro_rules! golden {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/template/", $name))
    };
}

/// The template of the tiny model.
fn tiny() -> Family {
    let config = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tiny-model/tokenizer_config.json"));
    let config: serde_json::Value = serde_json::from_str(config).unwrap();
    chatml("tiny", config["chat_template"].as_str().unwrap())
}

/// `<end_of_turn>` closes, but is not the end-of-sequence token; no tool role.
fn gemma(name: &str, stops: &[&str]) -> Family {
    let template = "<bos>{% for message in messages %}\
        {% if message.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}\
        {% if message.role == 'system' and not loop.first %}{{ raise_exception('system first') }}{% endif %}\
        {{ '<start_of_turn>' + ('model' if message.role == 'assistant' else 'user') + '\n' + message.content | trim + \
        '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}";
    let special = ["<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>"];
    Family {
        name: name.to_owned(),
        model: model(&Traits { template, special: &special, stops, rstrip: false }),
        close: "<end_of_turn>",
        last_close: "<end_of_turn>",
        call_close: "<end_of_turn>",
        stop: None,
        foreign: "<eos>",
    }
}

/// No close at all: the model stops by starting the next message.
fn glm() -> Family {
    let template = "[gMASK]<sop>{% for message in messages %}\
        {% if message.role == 'tool' %}{{ '<|observation|>\n<tool_response>\n' + message.content + '\n</tool_response>' }}\
        {% else %}{{ '<|' + message.role + '|>\n' + message.content }}\
        {% for call in message.tool_calls or [] %}{{ '\n<tool_call>' + call.function.name }}\
        {% for key, value in call.function.arguments.items() %}\
        {{ '\n<arg_key>' + key + '</arg_key>\n<arg_value>' + (value if value is string else value | tojson) + \
        '</arg_value>' }}{% endfor %}{{ '\n</tool_call>' }}{% endfor %}{% endif %}{% endfor %}\
        {% if add_generation_prompt %}<|assistant|>{% endif %}";
    let special = ["<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"];
    Family {
        name: "glm".to_owned(),
        model: model(&Traits { template, special: &special, stops: &["<|user|>", "<|observation|>"], rstrip: false }),
        close: "",
        last_close: "",
        call_close: "",
        stop: Some("<|user|>"),
        foreign: "<|endoftext|>",
    }
}

/// Three closes: in the middle, at the end, after a call; a tool's message names the call before it.
fn gpt_oss() -> Family {
    let template = "{% set last = namespace(name=none) %}{% for message in messages %}\
        {% if message.role == 'assistant' %}{% if message.tool_calls %}\
        {% if message.tool_calls | length > 1 %}{{ raise_exception('one call') }}{% endif %}\
        {% if message.content %}{{ '<|start|>assistant<|channel|>analysis<|message|>' + message.content + '<|end|>' }}\
        {% endif %}{% set call = message.tool_calls[0].function %}{% set last.name = call.name %}\
        {{ '<|start|>assistant to=functions.' + call.name + '<|channel|>commentary json<|message|>' + \
        call.arguments | tojson + '<|call|>' }}\
        {% elif loop.last and not add_generation_prompt %}\
        {{ '<|start|>assistant<|channel|>final<|message|>' + message.content + '<|return|>' }}\
        {% else %}{{ '<|start|>assistant<|channel|>final<|message|>' + message.content + '<|end|>' }}\
        {% set last.name = none %}{% endif %}\
        {% elif message.role == 'tool' %}{% if last.name is none %}{{ raise_exception('no call') }}{% endif %}\
        {{ '<|start|>functions.' + last.name + ' to=assistant<|channel|>commentary<|message|>' + \
        message.content | tojson + '<|end|>' }}\
        {% else %}{{ '<|start|>' + message.role + '<|message|>' + message.content + '<|end|>' }}{% endif %}{% endfor %}\
        {% if add_generation_prompt %}<|start|>assistant{% endif %}";
    let special = ["<|return|>", "<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|call|>"];
    Family {
        name: "gpt-oss".to_owned(),
        model: model(&Traits { template, special: &special, stops: &["<|endoftext|>", "<|call|>"], rstrip: false }),
        close: "<|end|>",
        last_close: "<|return|>",
        call_close: "<|call|>",
        stop: None,
        foreign: "<|return|>",
    }
}

/// A close of two tokens.
fn cohere() -> Family {
    let template = "<BOS_TOKEN>{% for message in messages %}\
        {% if message.role == 'assistant' %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>\
        {% if message.tool_calls %}{% if message.content %}\
        {{ '<|START_THINKING|>' + message.content + '<|END_THINKING|>' }}{% endif %}<|START_ACTION|>[\
        {% for call in message.tool_calls %}{{ '{\"tool_name\": \"' + call.function.name + '\", \"parameters\": ' + \
        call.function.arguments | tojson + '}' }}{{ ', ' if not loop.last }}{% endfor %}\
        ]<|END_ACTION|><|END_OF_TURN_TOKEN|>\
        {% else %}{{ '<|START_RESPONSE|>' + message.content + '<|END_RESPONSE|><|END_OF_TURN_TOKEN|>' }}{% endif %}\
        {% else %}{{ '<|START_OF_TURN_TOKEN|>' + ('<|USER_TOKEN|>' if message.role == 'user' else '<|SYSTEM_TOKEN|>') + \
        message.content + '<|END_OF_TURN_TOKEN|>' }}{% endif %}{% endfor %}\
        {% if add_generation_prompt %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{% endif %}";
    let special = [
        "<|END_OF_TURN_TOKEN|>",
        "<BOS_TOKEN>",
        "<|START_OF_TURN_TOKEN|>",
        "<|CHATBOT_TOKEN|>",
        "<|USER_TOKEN|>",
        "<|SYSTEM_TOKEN|>",
        "<|START_RESPONSE|>",
        "<|END_RESPONSE|>",
        "<|START_ACTION|>",
        "<|END_ACTION|>",
        "<|START_THINKING|>",
        "<|END_THINKING|>",
    ];
    Family {
        name: "cohere".to_owned(),
        model: model(&Traits { template, special: &special, stops: &["<|endoftext|>"], rstrip: false }),
        close: "<|END_RESPONSE|><|END_OF_TURN_TOKEN|>",
        last_close: "<|END_RESPONSE|><|END_OF_TURN_TOKEN|>",
        call_close: "<|END_OF_TURN_TOKEN|>",
        stop: None,
        foreign: "<|endoftext|>",
    }
}

/// The end-of-sequence token stands only at the very end, and tokens swallow the line break after them.
fn phi() -> Family {
    let template = "{% for message in messages %}{{ '<|' + message.role + '|>\n' + message.content + '<|end|>\n' }}\
        {% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}<|endoftext|>{% endif %}";
    let special = ["<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|end|>"];
    Family {
        name: "phi".to_owned(),
        model: model(&Traits { template, special: &special, stops: &["<|end|>"], rstrip: true }),
        close: "<|end|>",
        last_close: "<|end|>",
        call_close: "<|end|>",
        stop: None,
        foreign: "<|endoftext|>",
    }
}

/// Contents are trimmed; a message with a call does not show its content, and makes one call only.
fn llama() -> Family {
    let template = "{{ '<|begin_of_text|>' }}{% for message in messages %}\
        {% if message.role == 'tool' %}{{ '<|start_header_id|>ipython<|end_header_id|>\n\n' + message.content | tojson + \
        '<|eot_id|>' }}\
        {% elif message.tool_calls %}{% if message.tool_calls | length != 1 %}{{ raise_exception('one call') }}{% endif %}\
        {% set call = message.tool_calls[0].function %}\
        {{ '<|start_header_id|>assistant<|end_header_id|>\n\n{\"name\": \"' + call.name + '\", \"parameters\": ' + \
        call.arguments | tojson + '}<|eot_id|>' }}\
        {% else %}{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content | trim + \
        '<|eot_id|>' }}{% endif %}{% endfor %}\
        {% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}";
    let special = ["<|eot_id|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>"];
    Family {
        name: "llama".to_owned(),
        model: model(&Traits { template, special: &special, stops: &["<|eom_id|>"], rstrip: false }),
        close: "<|eot_id|>",
        last_close: "<|eot_id|>",
        call_close: "<|eot_id|>",
        stop: None,
        foreign: "<|eom_id|>",
    }
}

/// Arguments are concatenated, so they must be text; calls are full of special tokens; no message starts after a tool's.
fn deepseek() -> Family {
    let template = "{% set ns = namespace(tool=false, outputs=false) %}<|begin|>{% for message in messages %}\
        {% if message.role == 'system' %}{{ message.content }}\
        {% elif message.role == 'user' %}{% set ns.tool = false %}\
        {% if ns.outputs %}{{ '<|outputs_end|>' }}{% set ns.outputs = false %}{% endif %}{{ '<|User|>' + message.content }}\
        {% elif message.role == 'tool' %}{% set ns.tool = true %}\
        {{ ('' if ns.outputs else '<|outputs_begin|>') + '<|output_begin|>' + message.content + '<|output_end|>' }}\
        {% set ns.outputs = true %}\
        {% else %}{% if ns.outputs %}{{ '<|outputs_end|>' }}{% set ns.outputs = false %}{% else %}<|Assistant|>{% endif %}\
        {{ message.content }}{% if message.tool_calls %}<|calls_begin|>{% for call in message.tool_calls %}\
        {{ '<|call_begin|>function<|sep|>' + call.function.name + '\n```json\n' + call.function.arguments + \
        '\n```<|call_end|>' }}{{ '\n' if not loop.last }}{% endfor %}<|calls_end|>{% endif %}<|end|>{% endif %}\
        {% endfor %}{% if ns.outputs %}<|outputs_end|>{% elif add_generation_prompt %}<|Assistant|>{% endif %}";
    let special = [
        "<|end|>",
        "<|begin|>",
        "<|User|>",
        "<|Assistant|>",
        "<|calls_begin|>",
        "<|call_begin|>",
        "<|sep|>",
        "<|call_end|>",
        "<|calls_end|>",
        "<|outputs_begin|>",
        "<|output_begin|>",
        "<|output_end|>",
        "<|outputs_end|>",
    ];
    Family {
        name: "deepseek".to_owned(),
        model: model(&Traits { template, special: &special, stops: &["<|endoftext|>"], rstrip: false }),
        close: "<|end|>",
        last_close: "<|end|>",
        call_close: "<|end|>",
        stop: None,
        foreign: "<|endoftext|>",
    }
}

/// Thoughts before the last question are dropped; those after it are laid out anew.
fn qwen() -> Family {
    let template = "{% set ns = namespace(last=0) %}{% for message in messages %}{% if message.role == 'user' %}\
        {% set ns.last = loop.index0 %}{% endif %}{% endfor %}{% for message in messages %}\
        {% if message.role == 'assistant' %}{% set content = message.content %}{% set thought = '' %}\
        {% if message.reasoning_content is string %}{% set thought = message.reasoning_content %}\
        {% elif '</think>' in content %}\
        {% set thought = content.split('</think>')[0].split('<think>')[-1].strip('\n') %}\
        {% set content = content.split('</think>')[-1].lstrip('\n') %}{% endif %}\
        {{ '<|im_start|>assistant\n' }}{% if loop.index0 > ns.last and (loop.last or thought) %}\
        {{ '<think>\n' + thought.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}{% else %}{{ content }}{% endif %}\
        {% for call in message.tool_calls or [] %}\
        {{ ('\n' if content or not loop.first else '') + '<tool_call>\n{\"name\": \"' + call.function.name + \
        '\", \"arguments\": ' + call.function.arguments | tojson + '}\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\n' }}\
        {% elif message.role == 'tool' %}{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}\
        {{ '<|im_start|>user' }}{% endif %}{{ '\n<tool_response>\n' + message.content + '\n</tool_response>' }}\
        {% if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\n' }}{% endif %}\
        {% else %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% endif %}{% endfor %}\
        {% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
    chatml("qwen", template)
}

/// The user's message opens the assistant's, and tools stand before the last of the user's.
fn mistral() -> Family {
    let template = "{% set ns = namespace(last=0) %}{% for message in messages %}{% if message.role == 'user' %}\
        {% set ns.last = loop.index0 %}{% endif %}{% endfor %}{{ '<s>' }}{% for message in messages %}\
        {% if message.role == 'user' %}{% if tools and loop.index0 == ns.last %}\
        {{ '[AVAILABLE_TOOLS]' + tools | tojson + '[/AVAILABLE_TOOLS]' }}{% endif %}\
        {{ '[INST]' + message.content + '[/INST]' }}\
        {% elif message.role == 'tool' %}{{ '[TOOL_RESULTS]' + message.content + '[/TOOL_RESULTS]' }}\
        {% elif message.role == 'system' %}{{ '[SYSTEM_PROMPT]' + message.content + '[/SYSTEM_PROMPT]' }}\
        {% elif message.tool_calls %}{{ message.content + '[TOOL_CALLS][' }}{% for call in message.tool_calls %}\
        {{ '{\"name\": \"' + call.function.name + '\", \"arguments\": ' + call.function.arguments | tojson + '}' }}\
        {{ ', ' if not loop.last }}{% endfor %}{{ ']</s>' }}{% else %}{{ message.content + '</s>' }}{% endif %}{% endfor %}";
    let special = [
        "</s>",
        "<s>",
        "[INST]",
        "[/INST]",
        "[AVAILABLE_TOOLS]",
        "[/AVAILABLE_TOOLS]",
        "[TOOL_RESULTS]",
        "[/TOOL_RESULTS]",
        "[TOOL_CALLS]",
        "[SYSTEM_PROMPT]",
        "[/SYSTEM_PROMPT]",
    ];
    Family {
        name: "mistral".to_owned(),
        model: model(&Traits { template, special: &special, stops: &["<|endoftext|>"], rstrip: false }),
        close: "</s>",
        last_close: "</s>",
        call_close: "</s>",
        stop: None,
        foreign: "<|endoftext|>",
    }
}

/// Loops over the parts of a content.
fn parts() -> Family {
    chatml(
        "parts",
        "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' }}\
         {% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}\
         {% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}\
         {% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    )
}

pub(crate) fn all() -> Vec<Family> {
    vec![
        tiny(),
        chatml("default", golden!("default.jinja")),
        chatml("hermes", golden!("hermes.jinja")),
        chatml("think", golden!("think.jinja")),
        parts(),
        qwen(),
        gemma("gemma", &["<end_of_turn>"]),
        gemma("gemma, eos only", &[]),
        glm(),
        gpt_oss(),
        cohere(),
        phi(),
        llama(),
        deepseek(),
        mistral(),
    ]
}

pub(crate) fn named(name: &str) -> Family {
    all().into_iter().find(|family| family.name == name).unwrap()
}
