//! Answers that have a form: behind the end of the reasoning, marks are text, whatever the format of reasoning is.

use super::{
    super::{
        AnswerForm, CallInReasoning, OutputFormat, PromptReasoning, ReasoningParser,
        told::{Told, told},
    },
    reasoning_parser,
};
use crate::json::{Object, Value};

/// What is read of a text that has a form, whole and character by character.
#[track_caller]
fn read(name: &str, variables: &Object, form: AnswerForm, prompt: PromptReasoning, text: &str) -> Told {
    let reasoning = reasoning_parser(name).format(variables);
    let format = OutputFormat::new(Some(reasoning), None, None).with_form(form);
    let whole = told(&format, prompt, [text]);
    let characters = text.char_indices().map(|(at, c)| &text[at..at + c.len_utf8()]);
    assert_eq!(told(&format, prompt, characters), whole, "{name} {text:?}");
    whole
}

fn variables(text: &str) -> Object {
    Value::parse(text).unwrap().as_object().unwrap().clone()
}

#[test]
fn text_behind_the_reasoning_is_content_to_the_letter_in_every_format() {
    let marks: Vec<&str> = ReasoningParser::names().flat_map(|name| reasoning_parser(name).spellings()).collect();
    let said = format!(" x{}<answer>\n</answer></response>y ", marks.join("z"));
    for call in [CallInReasoning::Text, CallInReasoning::EndsUnended, CallInReasoning::Ends] {
        let form = AnswerForm { to_the_letter: true, call };
        for name in ReasoningParser::names() {
            let Some(marks) = reasoning_parser(name).marks() else { continue };
            for variables in [variables("{}"), variables(r#"{"force_nonempty_content": true}"#)] {
                let thought = format!("a{}{said}", marks.end);
                let begun = read(name, &variables, form, PromptReasoning::Begun(0), &thought);
                assert_eq!(begun, (Some("a".to_owned()), said.clone(), vec![]), "{name}");
                // A form may be white space, of which nothing else is made.
                let blank = read(name, &variables, form, PromptReasoning::Begun(0), &format!("a{} ", marks.end));
                assert_eq!(blank, (Some("a".to_owned()), " ".to_owned(), vec![]), "{name}");
                let ended = read(name, &variables, form, PromptReasoning::Ended, &thought);
                assert_eq!(ended, (None, thought, vec![]), "{name}");
            }
        }
    }
}

#[test]
fn the_mark_of_a_call_in_reasoning_is_text_where_no_call_may_follow() {
    let form = AnswerForm { to_the_letter: true, call: CallInReasoning::Text };
    for text in ["a<tool_call>b</think>c", "a<tool_call>b"] {
        let (reasoning, content, _) = read("qwen3", &Object::default(), form, PromptReasoning::Begun(0), text);
        let content_of = text.split_once("</think>").map_or("", |(_, content)| content);
        assert_eq!((reasoning.as_deref(), content.as_str()), (Some("a<tool_call>b"), content_of), "{text}");
    }
}

#[test]
fn json_of_a_form_has_no_channels() {
    let form = AnswerForm { to_the_letter: true, call: CallInReasoning::Text };
    let text = "\"a<|end|><|start|>assistant<|channel|>final<|message|>b\"";
    let read = read("openai_gptoss", &Object::default(), form, PromptReasoning::Unmarked, text);
    assert_eq!(read, (None, text.to_owned(), vec![]));
}
