//! What a conversation starts with, besides its items: it stays from response to response unless a request has others.

use serde::{Deserialize, Serialize};

use super::types::ResponsesRequest;
use crate::{
    api::http::error::ApiError,
    json::{Object, Value},
};

/// What the template shows ahead of the items, or is told.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Context {
    pub(super) instructions: Option<String>,
    tools: Option<Vec<Value>>,
    /// Of `reasoning`.
    effort: Option<String>,
    chat_template: Option<Value>,
    chat_template_kwargs: Option<Value>,
}

impl Context {
    /// What a request says.
    pub(super) fn of(request: &ResponsesRequest) -> Self {
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

    /// With what a stored conversation started with, where this says nothing; and whether it says something else, so that
    /// the stored ids are not those of the conversation any more.
    pub(super) fn over(self, earlier: &Self) -> (Self, bool) {
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

    /// No tools are no tools, however that is said.
    fn normal(&self) -> Self {
        Self { tools: self.tools.clone().filter(|tools| !tools.is_empty()), ..self.clone() }
    }

    /// Puts what stays into a request that does not say it.
    pub(super) fn apply(&self, request: &mut ResponsesRequest) -> Result<(), ApiError> {
        request.instructions.clone_from(&self.instructions);
        request.tools.clone_from(&self.tools);
        request.chat_template.clone_from(&self.chat_template);
        request.chat_template_kwargs.clone_from(&self.chat_template_kwargs);
        if let Some(effort) = &self.effort {
            let reasoning = request.reasoning.get_or_insert_with(|| Value::Object(Object::new()));
            let Value::Object(fields) = reasoning else { return Err(ApiError::internal("`reasoning` is no object")) };
            fields.insert("effort".to_owned(), Value::from(effort.as_str()));
        }
        Ok(())
    }
}
