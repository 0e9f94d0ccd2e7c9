//! What a chat template leaves out of a conversation without a word: tools, calls or documents that it never writes.
//!
//! A template is asked by rendering a short conversation with a word in that part, and looking for the word. A template
//! that cannot render it counts as one that shows the part: nothing is told that was not seen.

use super::{ChatPrompt, PromptRenderer, Provenance, Templates, conversation::Conversation, template::ChatTemplate};
use crate::{
    chat::{FunctionTool, Message, ToolCall},
    json::{Object, Value},
};

/// A part of a conversation that some templates do not show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HiddenPart {
    /// The tools of a request.
    Tools,
    /// The calls that earlier messages made.
    ToolCalls,
    /// The documents of a request.
    Documents,
}

impl HiddenPart {
    /// The parts, in the order of their numbers.
    const ALL: [Self; 3] = [Self::Tools, Self::ToolCalls, Self::Documents];

    /// What requests call the part.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::ToolCalls => "tool_calls",
            Self::Documents => "documents",
        }
    }

    /// A short conversation that has the word in this part, with a system message or without one.
    fn probe(self, has_system: bool, of: &ChatPrompt) -> ChatPrompt {
        let mut messages = vec![Message::text("user", "a")];
        if has_system {
            messages.insert(0, Message::text("system", "a"));
        }
        if self == Self::ToolCalls {
            messages.extend(called());
        }
        let (tools, documents) = match self {
            Self::Tools => (Some(vec![tool(WORD)]), None),
            Self::ToolCalls => (Some(vec![tool("other")]), None),
            Self::Documents => (None, Some(vec![document()])),
        };
        // A request's template takes no longer for this than the request is waited for.
        let patience = of.template.as_ref().map(|_| of.patience.clone()).unwrap_or_default();
        ChatPrompt {
            tools,
            documents,
            template_kwargs: of.template_kwargs.clone(),
            reasoning_effort: of.reasoning_effort.clone(),
            patience,
            ..ChatPrompt::new(messages)
        }
    }

    /// Whether a template writes this part of a conversation with the variables of `of`.
    fn is_shown(self, template: &ChatTemplate, of: &ChatPrompt) -> bool {
        let mut was_rendered = false;
        for has_system in [false, true] {
            match Conversation::render(template, &self.probe(has_system, of), None) {
                Ok((_, text)) if text.contains(WORD) => return true,
                Ok(_) => was_rendered = true,
                Err(_) => {}
            }
        }
        !was_rendered
    }

    /// The same, and only once for each template as long as the variables do not matter.
    fn is_shown_once(self, template: &ChatTemplate, of: &ChatPrompt) -> bool {
        let plain = || ChatPrompt { template: of.template.clone(), patience: of.patience.clone(), ..empty() };
        let is_shown = template.known_to_show(self as usize, || self.is_shown(template, &plain()));
        let has_variables = !of.template_kwargs.is_empty() || of.reasoning_effort.is_some();
        is_shown || (has_variables && self.is_shown(template, of))
    }
}

/// The word that is looked for.
const WORD: &str = "titoprobe";

fn empty() -> ChatPrompt {
    ChatPrompt::new(Vec::new())
}

fn tool(name: &str) -> FunctionTool {
    let parameters = Value::parse(r#"{"type": "object", "properties": {"a": {"type": "string", "description": "a"}}}"#);
    FunctionTool {
        name: name.to_owned(),
        description: Some("a".to_owned()),
        parameters: parameters.ok(),
        strict: None,
        defer_loading: None,
        outer_defer_loading: None,
    }
}

/// A call and its result. The id is one that the strictest templates take.
fn called() -> [Message; 2] {
    const ID: &str = "abcdefghi";

    let call = ToolCall {
        id: ID.to_owned(),
        name: WORD.to_owned(),
        arguments: Some(r#"{"a": "a"}"#.to_owned()),
        function_extras: Object::default(),
        extras: Object::default(),
    };
    let assistant = Message { tool_calls: Some(vec![call]), ..Message::text("assistant", "") };
    let result = Message { tool_call_id: Some(ID.to_owned()), ..Message::text("tool", "a") };
    [assistant, result]
}

/// A document with all the keys that templates read.
fn document() -> Value {
    ["doc_id", "title", "text", "content", "contents", "snippet"]
        .map(|key| (key, Value::from(WORD)))
        .into_iter()
        .collect()
}

impl Templates {
    /// Whether the template for conversations with tools shows these; also where there is no template to ask.
    pub fn show_tools(&self) -> bool {
        let template = self.tool_use.as_ref().or(self.default.as_ref());
        template.is_none_or(|template| HiddenPart::Tools.is_shown_once(template, &empty()))
    }
}

impl PromptRenderer {
    /// What the prompt of a conversation does not show of it, though it is there. Calls within known ids are shown by these.
    pub fn hidden(&self, prompt: &ChatPrompt, provenance: Provenance) -> Vec<HiddenPart> {
        let is_encoded = matches!(provenance, Provenance::Rendered | Provenance::Retokenized(_));
        let is_there = |part: &HiddenPart| match part {
            HiddenPart::Tools => prompt.tools.as_ref().is_some_and(|tools| !tools.is_empty()),
            HiddenPart::ToolCalls => is_encoded && prompt.has_tool_calls(),
            HiddenPart::Documents => prompt.documents.as_ref().is_some_and(|documents| !documents.is_empty()),
        };
        let there = HiddenPart::ALL.into_iter().filter(is_there);
        if matches!(provenance, Provenance::Given) {
            return Vec::new();
        }
        if self.is_harmony() {
            // It has no place for documents.
            return there.filter(|part| *part == HiddenPart::Documents).collect();
        }
        let Ok(template) = self.template(prompt) else { return Vec::new() };
        there.filter(|part| !part.is_shown_once(template, prompt)).collect()
    }
}

#[cfg(test)]
mod tests {
    use indexmap::IndexMap;

    use super::*;

    const MESSAGES: &str = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}";

    /// What a template hides of a conversation that has everything, with these variables.
    fn hidden(source: &str, variables: &str) -> Vec<&'static str> {
        let template = ChatTemplate::new(source, IndexMap::new()).unwrap();
        let Ok(Value::Object(template_kwargs)) = Value::parse(variables) else { panic!("{variables}") };
        let prompt = ChatPrompt { template_kwargs, ..empty() };
        let hidden = |part: &HiddenPart| !part.is_shown_once(&template, &prompt);
        HiddenPart::ALL.into_iter().filter(hidden).map(HiddenPart::name).collect()
    }

    #[test]
    fn what_a_template_never_writes_is_hidden() {
        let calls = "{% for message in messages if message.tool_calls %}{{ message.tool_calls | tojson }}{% endfor %}";
        assert_eq!(hidden(MESSAGES, "{}"), ["tools", "tool_calls", "documents"]);
        assert_eq!(hidden("{{ tools | tojson }}{{ documents | tojson }}", "{}"), ["tool_calls"]);
        assert_eq!(hidden(calls, "{}"), ["tools", "documents"]);
    }

    #[test]
    fn conditions_of_templates_are_met() {
        let with_system = "{% if messages[0].role == 'system' %}{{ tools }}{% endif %}{{ messages }}{{ documents }}";
        assert_eq!(hidden(with_system, "{}"), [""; 0]);
        let with_variable = "{% if lists %}{{ tools }}{% endif %}{{ messages }}{{ documents }}";
        assert_eq!(hidden(with_variable, "{}"), ["tools"]);
        assert_eq!(hidden(with_variable, r#"{"lists": true}"#), [""; 0]);
        // Nothing is told that was not seen.
        assert_eq!(hidden("{{ raise_exception('no') }}", "{}"), [""; 0]);
    }

    #[test]
    fn the_template_for_tools_is_asked() {
        let template = |source| Some(ChatTemplate::new(source, IndexMap::new()).unwrap());
        assert!(Templates::default().show_tools());
        assert!(!Templates { default: template(MESSAGES), tool_use: None }.show_tools());
        assert!(Templates { default: template(MESSAGES), tool_use: template("{{ tools }}") }.show_tools());
    }
}
