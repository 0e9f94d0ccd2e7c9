//! The context with which a conversation starts, besides its items: it stays from response to response unless a request
//! replaces it.

use serde::{Deserialize, Serialize};

use crate::{
    json::{Object, Value},
    wire::{error::ApiError, responses::types::ResponsesRequest},
};

/// The parts of the context: what the template shows before the items, and the variables of the template.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ConversationContext {
    pub instructions: Option<String>,
    tools: Option<Vec<Value>>,
    /// The effort, from the field `reasoning`.
    effort: Option<String>,
    chat_template: Option<Value>,
    chat_template_kwargs: Option<Value>,
}

impl ConversationContext {
    /// Reads the context of a request.
    pub fn of(request: &ResponsesRequest) -> Self {
        let given = |value: &Option<Value>| value.clone().filter(|value| !value.is_null());
        let effort = request.reasoning.as_ref().and_then(|reasoning| reasoning.get("effort")?.as_str());
        Self {
            instructions: request.instructions.clone(),
            tools: request.tools.clone(),
            effort: effort.map(str::to_owned),
            chat_template: given(&request.chat_template),
            chat_template_kwargs: given(&request.chat_template_kwargs),
        }
    }

    /// Fills the gaps with the context of a stored conversation. The flag says whether the result differs from that
    /// context, so that the stored ids are no longer those of the conversation.
    pub fn over(self, earlier: &Self) -> (Self, bool) {
        let before = earlier.clone();
        let whole = Self {
            instructions: self.instructions.or(before.instructions),
            tools: self.tools.or(before.tools),
            effort: self.effort.or(before.effort),
            chat_template: self.chat_template.or(before.chat_template),
            chat_template_kwargs: self.chat_template_kwargs.or(before.chat_template_kwargs),
        };
        let differs = whole.normal() != earlier.normal();
        (whole, differs)
    }

    /// Treats an empty list of tools like no list.
    fn normal(&self) -> Self {
        Self { tools: self.tools.clone().filter(|tools| !tools.is_empty()), ..self.clone() }
    }

    /// Puts this context into a request.
    pub fn apply(&self, request: &mut ResponsesRequest) -> Result<(), ApiError> {
        request.instructions.clone_from(&self.instructions);
        request.tools.clone_from(&self.tools);
        request.chat_template.clone_from(&self.chat_template);
        request.chat_template_kwargs.clone_from(&self.chat_template_kwargs);
        if let Some(effort) = &self.effort {
            let reasoning = request.reasoning.get_or_insert_with(|| Value::Object(Object::default()));
            let Value::Object(fields) = reasoning else { return Err(ApiError::internal("`reasoning` is no object")) };
            fields.insert("effort".to_owned(), Value::from(effort.as_str()));
        }
        Ok(())
    }
}
