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
    /// Whether the template is not shown the tools, since none may be called.
    #[serde(default)]
    hides_tools: bool,
    /// The effort, from the field `reasoning`.
    effort: Option<String>,
    chat_template: Option<Value>,
    chat_template_kwargs: Option<Value>,
}

impl ConversationContext {
    /// Reads the context of a request, whose tools may be hidden from the template.
    pub fn of(request: &ResponsesRequest, hides_tools: bool) -> Self {
        let given = |value: &Option<Value>| value.clone().filter(|value| !value.is_null());
        let effort = request.reasoning.as_ref().and_then(|reasoning| reasoning.get("effort")?.as_str());
        Self {
            instructions: request.instructions.clone(),
            tools: request.tools.clone(),
            hides_tools,
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
            // Not what carries over: each request says anew whether tools may be called.
            hides_tools: self.hides_tools,
            effort: self.effort.or(before.effort),
            chat_template: self.chat_template.or(before.chat_template),
            chat_template_kwargs: self.chat_template_kwargs.or(before.chat_template_kwargs),
        };
        let differs = whole.shown() != earlier.shown();
        (whole, differs)
    }

    /// What the template is shown: an empty list of tools is no list, and neither are tools that are hidden.
    fn shown(&self) -> Self {
        let tools = self.tools.clone().filter(|tools| !tools.is_empty() && !self.hides_tools);
        Self { tools, hides_tools: false, ..self.clone() }
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
