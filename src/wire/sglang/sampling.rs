//! `sampling_params` in SGLang's words (`srt/sampling/sampling_params.py`), and what they are called elsewhere.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::{
    asked_for::is_filled,
    wire::{
        error::ApiError,
        fields::{
            sampling::{SamplingFields, Stop},
            structured::StructuredFields,
            unserved::refuse_unserved,
        },
    },
};

/// Names of other servers, and those of SGLang.
const NAMED_ELSEWHERE: [(&str, &str); 6] = [
    ("max_tokens", "max_new_tokens"),
    ("max_completion_tokens", "max_new_tokens"),
    ("min_tokens", "min_new_tokens"),
    ("seed", "sampling_seed"),
    ("include_stop_str_in_output", "no_stop_trim"),
    ("guided_json", "json_schema"),
];

/// SGLang's limit; that of vLLM's own endpoints is another one.
const MOST_STOP_STRINGS: usize = 32;

/// SGLang's default.
const MAX_NEW_TOKENS: i64 = 128;

/// How to sample. The defaults are SGLang's, and none of the model's.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
pub(crate) struct SglangSamplingParams {
    /// Tokens to generate (default 128); null is the room that the prompt leaves. 0 only scores the prompt, see
    /// `logprob_start_len`.
    #[serde(default = "max_new_tokens")]
    pub max_new_tokens: Option<i64>,
    /// Sample at least this many tokens before one ends the generation.
    pub min_new_tokens: Option<i64>,
    /// 0 is greedy, at most 2.
    pub temperature: Option<f64>,
    /// In (0, 1]; a share of what `min_p` and `top_k` leave.
    pub top_p: Option<f64>,
    /// 0 or -1 is off.
    pub top_k: Option<i64>,
    /// In [0, 1].
    pub min_p: Option<f64>,
    /// In [-2, 2], over output tokens.
    pub frequency_penalty: Option<f64>,
    /// In [-2, 2], over output tokens.
    pub presence_penalty: Option<f64>,
    /// Over 0, over prompt and output tokens.
    pub repetition_penalty: Option<f64>,
    /// Texts that end the generation.
    pub stop: Option<Stop>,
    /// Tokens that end the generation.
    pub stop_token_ids: Option<Vec<i64>>,
    /// Leave the stop string, and the text of the stop token, in the text.
    pub no_stop_trim: Option<bool>,
    /// Go on after the end-of-sequence token.
    pub ignore_eos: Option<bool>,
    /// Leave special tokens out of the text (default true).
    pub skip_special_tokens: Option<bool>,
    /// False joins special tokens that follow each other directly (default true).
    pub spaces_between_special_tokens: Option<bool>,
    /// Token id (as a string) to what is added to its logit.
    #[schema(value_type = Option<std::collections::HashMap<String, f64>>)]
    pub logit_bias: Option<BTreeMap<String, f64>>,
    /// Sequences to generate (default 1).
    pub n: Option<i64>,
    /// The same seed gives the same ids.
    pub sampling_seed: Option<i64>,
    /// The answer is JSON that keeps to this schema, given as text.
    pub json_schema: Option<String>,
    /// A regular expression that matches all of the answer.
    pub regex: Option<String>,
    /// A grammar in EBNF.
    pub ebnf: Option<String>,
    /// Text and JSON between tags, given as text.
    pub structural_tag: Option<String>,
    /// Refused unless null.
    #[schema(value_type = Option<Object>)]
    pub stop_regex: Option<Value>,
    /// Refused unless null or empty.
    #[schema(value_type = Option<Object>)]
    pub custom_params: Option<Value>,
    /// What SGLang does not have: refused unless null, as there.
    #[serde(flatten)]
    #[schema(ignore)]
    others: BTreeMap<String, Value>,
}

/// What SGLang has for the pieces of a stream, which are as small as can be here.
const WITHOUT_EFFECT: &str = "stream_interval";

#[expect(clippy::unnecessary_wraps, reason = "the field may be null")]
fn max_new_tokens() -> Option<i64> {
    Some(MAX_NEW_TOKENS)
}

impl SglangSamplingParams {
    /// Returns what holds where the request says nothing.
    pub(crate) fn unsaid() -> Self {
        Self { max_new_tokens: max_new_tokens(), ..Self::default() }
    }

    /// Returns the same fields under the names that they have elsewhere.
    pub(crate) fn into_fields(self) -> Result<SamplingFields, ApiError> {
        refuse_unserved([("stop_regex", &self.stop_regex), ("custom_params", &self.custom_params)], is_filled)?;
        self.refuse_others()?;
        if self.max_new_tokens == Some(0) && self.min_new_tokens.is_some_and(|least| least > 0) {
            let message = "`min_new_tokens` must not be over `max_new_tokens`, which is 0";
            return Err(ApiError::invalid("min_new_tokens", message));
        }
        self.check_stops()?;
        let structured = self.structured()?;
        Ok(SamplingFields {
            temperature: self.temperature,
            top_p: self.top_p,
            top_k: self.top_k,
            min_p: self.min_p,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            repetition_penalty: self.repetition_penalty,
            logit_bias: self.logit_bias,
            seed: self.sampling_seed,
            n: self.n,
            stop: self.stop,
            stop_token_ids: self.stop_token_ids,
            include_stop_str_in_output: self.no_stop_trim,
            ignore_eos: self.ignore_eos,
            min_tokens: self.min_new_tokens,
            skip_special_tokens: self.skip_special_tokens,
            spaces_between_special_tokens: self.spaces_between_special_tokens,
            structured,
            ..SamplingFields::default()
        })
    }

    fn check_stops(&self) -> Result<(), ApiError> {
        let Some(Stop::Many(stops)) = &self.stop else { return Ok(()) };
        if stops.len() > MOST_STOP_STRINGS {
            let message = format!("`stop` has {} texts, and may have {MOST_STOP_STRINGS}", stops.len());
            return Err(ApiError::invalid("stop", message));
        }
        Ok(())
    }

    /// Refuses what would be lost: a limit or a seed by the name that it has elsewhere, for one.
    fn refuse_others(&self) -> Result<(), ApiError> {
        let mut others = self.others.iter().filter(|(name, value)| !value.is_null() && *name != WITHOUT_EFFECT);
        let Some((name, _)) = others.next() else { return Ok(()) };
        let meant = NAMED_ELSEWHERE.iter().find(|(elsewhere, _)| elsewhere == name);
        let hint = meant.map(|(_, here)| format!("; `{here}` is what it is called there")).unwrap_or_default();
        Err(ApiError::invalid(name.clone(), format!("`sampling_params` has no `{name}` in SGLang{hint}")))
    }

    /// The forms of an answer that are asked for, by their names here and in vLLM. An empty text asks for none in SGLang.
    fn forms(&self) -> impl Iterator<Item = (&'static str, &'static str, &String)> {
        let forms = [
            ("json_schema", "json", &self.json_schema),
            ("regex", "regex", &self.regex),
            ("ebnf", "grammar", &self.ebnf),
            ("structural_tag", "structural_tag", &self.structural_tag),
        ];
        let given = forms.into_iter().filter_map(|(name, form, text)| Some((name, form, text.as_ref()?)));
        given.filter(|(.., text)| !text.is_empty())
    }

    /// The parameter that says what form the answer has.
    pub(crate) fn form(&self) -> Option<&'static str> {
        self.forms().next().map(|(name, ..)| name)
    }

    /// The form of the answer, in vLLM's words.
    fn structured(&self) -> Result<StructuredFields, ApiError> {
        let mut given = self.forms();
        let Some((name, form, text)) = given.next() else { return Ok(StructuredFields::default()) };
        if let Some((other, ..)) = given.next() {
            return Err(ApiError::invalid(other, format!("`{name}` and `{other}` exclude each other")));
        }
        serde_json::from_value(json!({ "structured_outputs": { form: text } })).map_err(ApiError::internal)
    }
}
