//! The stored conversation that a request continues: whether from its ids, and how it becomes messages with the new items.

use serde_json::value::RawValue;

use super::input::{Carried, Folded, ItemFold};
use crate::{
    TokenId,
    json::Value,
    records::{ConversationContext, Record},
    state::Api,
    wire::{error::ApiError, responses::types::ResponsesRequest},
};

/// Why the ids of a stored conversation are not those of the request's prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BeginsAnew {
    /// The prompt begins with other instructions or tools, or is made with other variables of the template.
    Context,
    /// They were made with another tokenizer or chat template, or nothing says with which.
    Text,
}

/// Whether the template is not shown the tools of a request that makes this choice.
pub(super) fn hides_tools(choice: Option<&Value>, api: &Api) -> bool {
    let may_not_call = choice.is_some_and(|choice| choice.as_str() == Some("none"));
    may_not_call && api.turns.policies.requests.exclude_tools_when_tool_choice_none
}

/// Returns the context of a request, and why the ids of the stored conversation are not those of its prompt, if they are not.
pub(super) fn context_of(
    request: &ResponsesRequest,
    stored: Option<&Record>,
    api: &Api,
) -> Result<(ConversationContext, Option<BeginsAnew>), ApiError> {
    let context = ConversationContext::of(request, hides_tools(request.tool_choice.as_ref(), api));
    let Some(stored) = stored else { return Ok((context, None)) };
    let (context, differs) = context.over(&stored.context);
    if api.responses.reads_ids_of(stored) {
        return Ok((context, differs.then_some(BeginsAnew::Context)));
    }
    if api.turns.continuity.is_strict() && known_ids(stored)?.is_some() {
        let message = "`previous_response_id` names a response with token ids that cannot be trusted: they were sampled \
                       with another tokenizer or chat template, or nothing says with which";
        return Err(ApiError::invalid_response("previous_response_id", message));
    }
    Ok((context, Some(BeginsAnew::Text)))
}

/// Folds the whole conversation into messages. If the conversation begins anew, the ids of stored items belong to
/// another one and are dropped. The ids of new items must start with those of the stored conversation.
pub(super) fn folded(
    context: &ConversationContext,
    stored: Option<&Record>,
    begins_anew: Option<BeginsAnew>,
    new_items: &[Box<RawValue>],
) -> Result<Folded, ApiError> {
    let mut fold = ItemFold::instructed(context.instructions.as_deref());
    let Some(stored) = stored else {
        fold.extend(new_items, Carried::Taken)?;
        return Ok(fold.finish());
    };
    let carried = if begins_anew.is_some() { Carried::Forgotten } else { Carried::Taken };
    fold.extend_stored(&stored.input, carried)?;
    fold.extend_stored(&stored.output, carried)?;
    let known = known_ids(stored)?;
    let carried = match (begins_anew, &known) {
        (Some(BeginsAnew::Context), _) => {
            Carried::Refused("carries ids, and other instructions or tools begin the ids anew")
        }
        (Some(BeginsAnew::Text), _) => Carried::Refused(
            "carries ids, and those of the response in front are not of this tokenizer and chat template",
        ),
        (None, None) => Carried::Refused("carries ids, and the response in front has none"),
        (None, Some(known)) => Carried::After(known),
    };
    fold.extend(new_items, carried)?;
    Ok(fold.finish())
}

/// Returns the ids of a stored conversation, which its last item has.
fn known_ids(stored: &Record) -> Result<Option<Vec<TokenId>>, ApiError> {
    #[derive(serde::Deserialize)]
    struct Ids {
        prompt_token_ids: Option<Vec<TokenId>>,
        generation_token_ids: Option<Vec<TokenId>>,
    }
    let Some(last) = stored.output.last() else { return Ok(None) };
    let ids: Ids = serde_json::from_str(last.get()).map_err(ApiError::internal)?;
    Ok(ids.prompt_token_ids.zip(ids.generation_token_ids).map(|(prompt, sampled)| [prompt, sampled].concat()))
}
