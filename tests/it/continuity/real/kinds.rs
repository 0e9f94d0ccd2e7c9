//! The kinds of released templates: which tokenizer they go with, and what a splice of them has to look like.

/// Where a kind's vocabulary comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Vocabulary {
    /// The family's own, by its directory.
    Own(&'static str),
    /// SmolLM2's, with these special tokens after it.
    SmolLm2 {
        special: &'static [&'static str],
        /// They swallow the white space after them.
        rstrip: bool,
    },
}

/// What templates whose names start alike have in common; the fields are those of a `Family`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    /// What their names start with; the longest that fits.
    pub(super) names: &'static [&'static str],
    pub(super) vocabulary: Vocabulary,
    pub(super) bos: &'static str,
    pub(super) eos: &'static str,
    pub(super) stops: &'static [&'static str],
    pub(super) close: &'static str,
    pub(super) last_close: &'static str,
    pub(super) call_close: &'static str,
    pub(super) stop: Option<&'static str>,
    pub(super) foreign: &'static str,
}

pub(super) const fn smollm2(special: &'static [&'static str]) -> Vocabulary {
    Vocabulary::SmolLm2 { special, rstrip: false }
}

/// One token closes whatever an assistant says.
pub(super) const fn closed_by(close: &'static str, vocabulary: Vocabulary, names: &'static [&'static str]) -> Kind {
    Kind {
        names,
        vocabulary,
        bos: "",
        eos: close,
        stops: &["<|endoftext|>"],
        close,
        last_close: close,
        call_close: close,
        stop: None,
        foreign: "<|endoftext|>",
    }
}

const LFM2: [&str; 6] = [
    "<|tool_response_start|>",
    "<|tool_response_end|>",
    "<|tool_list_start|>",
    "<|tool_list_end|>",
    "<|tool_call_start|>",
    "<|tool_call_end|>",
];

const COHERE: [&str; 8] = [
    "<BOS_TOKEN>",
    "<|START_OF_TURN_TOKEN|>",
    "<|END_OF_TURN_TOKEN|>",
    "<|CHATBOT_TOKEN|>",
    "<|USER_TOKEN|>",
    "<|SYSTEM_TOKEN|>",
    "<|START_RESPONSE|>",
    "<|END_RESPONSE|>",
];

const GEMMA4: [&str; 12] = [
    "<bos>",
    "<eos>",
    "<|turn>",
    "<turn|>",
    "<|channel>",
    "<channel|>",
    "<|tool>",
    "<tool|>",
    "<|tool_call>",
    "<tool_call|>",
    "<|tool_response>",
    "<tool_response|>",
];

pub(super) const KINDS: [Kind; 16] = [
    closed_by("<|im_end|>", Vocabulary::Own("qwen3"), &["qwen"]),
    closed_by("<|im_end|>", smollm2(&[]), &["nemotron_3"]),
    Kind { bos: "<|endoftext|>", ..closed_by("<|im_end|>", smollm2(&LFM2), &["lfm2"]) },
    Kind {
        bos: "<|begin_of_text|>",
        stops: &["<|end_of_text|>"],
        foreign: "<|end_of_text|>",
        ..closed_by("<|eot_id|>", Vocabulary::Own("llama3_1"), &["llama3"])
    },
    Kind {
        bos: "<bos>",
        eos: "<eos>",
        stops: &["<end_of_turn>"],
        foreign: "<eos>",
        ..closed_by("<end_of_turn>", Vocabulary::Own("gemma3"), &["gemma"])
    },
    Kind {
        bos: "<bos>",
        eos: "<eos>",
        stops: &["<turn|>", "<|tool_response>"],
        call_close: "<|tool_response>",
        foreign: "<eos>",
        ..closed_by("<turn|>", smollm2(&GEMMA4), &["gemma4", "diffusion_gemma"])
    },
    Kind {
        bos: "<bos>",
        eos: "<eos>",
        stops: &["<turn|>", "<|tool_response>"],
        foreign: "<eos>",
        ..closed_by("<turn|>", smollm2(&GEMMA4), &["gemma4_v2"])
    },
    Kind {
        bos: "<|startoftext|>",
        eos: "<|return|>",
        stops: &["<|endoftext|>", "<|call|>"],
        last_close: "<|return|>",
        call_close: "<|call|>",
        foreign: "<|return|>",
        ..closed_by("<|end|>", Vocabulary::Own("gptoss"), &["gptoss"])
    },
    Kind { bos: "<BOS_TOKEN>", ..closed_by("<|END_OF_TURN_TOKEN|>", smollm2(&COHERE), &["cohere"]) },
    Kind {
        bos: "<BOS_TOKEN>",
        close: "<|END_RESPONSE|><|END_OF_TURN_TOKEN|>",
        last_close: "<|END_RESPONSE|><|END_OF_TURN_TOKEN|>",
        call_close: "<|END_RESPONSE|><|END_OF_TURN_TOKEN|>",
        ..closed_by("<|END_OF_TURN_TOKEN|>", smollm2(&COHERE), &["cohere2"])
    },
    Kind {
        bos: "<｜begin▁of▁sentence｜>",
        stops: &["<｜▁pad▁｜>"],
        foreign: "<｜▁pad▁｜>",
        ..closed_by("<｜end▁of▁sentence｜>", Vocabulary::Own("deepseek_v3"), &["deepseek"])
    },
    // No close: the model stops by starting the next message.
    Kind {
        eos: "<|endoftext|>",
        stops: &["<|user|>", "<|observation|>"],
        stop: Some("<|user|>"),
        ..closed_by(
            "",
            smollm2(&["[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"]),
            &["glm4moe"],
        )
    },
    Kind {
        eos: "<|endoftext|>",
        stops: &["<|end|>"],
        ..closed_by(
            "<|end|>",
            Vocabulary::SmolLm2 { special: &["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"], rstrip: true },
            &["phi3"],
        )
    },
    Kind { bos: "<s>", ..closed_by("</s>", smollm2(&["<s>", "</s>", "[INST]", "[/INST]"]), &["llava_next"]) },
    Kind {
        stops: &["<|eom|>", "<|endoftext|>"],
        ..closed_by("<|eot|>", smollm2(&["<|start|>", "<|message|>", "<|eot|>", "<|eom|>"]), &["muse_glimmer"])
    },
    closed_by("<end_of_utterance>", smollm2(&["<end_of_utterance>", "<|begin_of_text|>"]), &["idefics3", "smolvlm"]),
];

/// The kind of a template, by its name; `None` for a kind that nobody has described.
pub(super) fn kind_of(name: &str) -> Option<Kind> {
    let fits = |kind: &Kind| kind.names.iter().filter(|start| name.starts_with(**start)).map(|start| start.len()).max();
    let fitting = KINDS.iter().filter_map(|kind| Some((fits(kind)?, kind)));
    fitting.max_by_key(|(length, _)| *length).map(|(_, kind)| *kind)
}
