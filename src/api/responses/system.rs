//! Several system messages, where the template wants one at the start.

use super::input::Folded;
use crate::{
    chat::{Content, ContentPart, Message},
    request_fields::template_wishes::refuses_inline_system,
    state::Api,
};

/// Moves what system messages say to the front, with a blank line between two of them, where the template refuses such
/// messages elsewhere. Developer messages are left to the prompt, which does the same with them.
pub(super) fn gathered(folded: Folded, api: &Api) -> Folded {
    let has_role = |message: &Message, role: &str| message.role.as_str() == role;
    let is_inline = folded.messages.iter().skip(1).any(|message| has_role(message, "system"));
    let has_developer = folded.messages.iter().any(|message| has_role(message, "developer"));
    if !is_inline || has_developer || !refuses_inline_system(api) {
        return folded;
    }
    let Folded { messages, places, ignored } = folded;
    let pairs = messages.into_iter().zip(places);
    let (system, others): (Vec<_>, Vec<_>) = pairs.partition(|(message, _)| has_role(message, "system"));
    let texts: Vec<String> =
        system.iter().map(|(message, _)| text(&message.content)).filter(|text| !text.is_empty()).collect();
    let place = system.first().and_then(|(_, place)| *place);
    let first = (Message::text("system", texts.join("\n\n")), place);
    let (messages, places) = std::iter::once(first).chain(others).unzip();
    Folded { messages, places, ignored }
}

fn text(content: &Content) -> String {
    match content {
        Content::Text(text) => text.clone(),
        Content::Parts(parts) => {
            let texts = parts.iter().filter_map(|part| match part {
                ContentPart::Object { fields, .. } => fields.get("text")?.as_str(),
                ContentPart::Text(text) => Some(text.as_str()),
                ContentPart::Image(_) => None,
            });
            texts.collect::<Vec<_>>().join("\n")
        }
        Content::Empty => String::new(),
    }
}
