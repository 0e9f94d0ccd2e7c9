//! Finds out what a chat template accepts by rendering with it; vLLM 0.32 asks the same two questions.

use time::OffsetDateTime;

use crate::{
    chat::Message,
    json::{Object, Value},
    prompt::ChatPrompt,
    state::Api,
};

/// All efforts except `none`.
const EFFORTS: [&str; 6] = ["minimal", "low", "medium", "high", "xhigh", "max"];

/// Whether system messages have to be gathered at the front, since the template refuses those that are not the first.
pub(crate) fn wants_system_first(messages: &[Message], api: &Api) -> bool {
    messages.iter().skip(1).any(|message| message.role.as_str() == "system") && refuses_inline_system(api)
}

/// Whether the template refuses system messages that are not the first.
fn refuses_inline_system(api: &Api) -> bool {
    let said = |role: &str| Message::text(role, "a");
    let without = vec![said("user"), said("assistant"), said("user")];
    let with = vec![said("user"), said("system"), said("assistant"), said("user")];
    rendered(api, with, None).is_none() && rendered(api, without, None).is_some()
}

/// Returns the effort that stands for thinking that is switched off: `none`, unless the template refuses it or treats
/// it like another one.
pub(crate) fn effort_without_thinking(api: &Api) -> &'static str {
    let with = |effort| rendered(api, vec![Message::text("user", "a")], Some(effort));
    let Some(off) = with("none") else { return "low" };
    let is_another = EFFORTS.into_iter().any(|effort| with(effort).is_some_and(|ids| ids == off));
    if is_another { "low" } else { "none" }
}

fn rendered(api: &Api, messages: Vec<Message>, effort: Option<&str>) -> Option<Vec<crate::TokenId>> {
    let mut variables: Object = api.turns.policies.requests.default_chat_template_kwargs.clone();
    if let Some(effort) = effort {
        variables.insert("enable_thinking".to_owned(), Value::Bool(effort != "none"));
    }
    let prompt = ChatPrompt {
        template_kwargs: variables,
        reasoning_effort: effort.map(str::to_owned),
        // Any time will do, as long as it is always the same.
        now: OffsetDateTime::UNIX_EPOCH,
        ..ChatPrompt::new(messages)
    };
    api.turns.renderer.render(&prompt).ok().map(|rendered| rendered.token_ids.to_vec())
}
