//! The headers that say what of a request's tools was not done as it asks.

use axum::{
    http::{HeaderName, HeaderValue},
    response::Response,
};

use crate::wire::answer::tool_notices::ToolNotices;

/// Characters of a header; the fields of the answer have all that there is to say.
const LONGEST: usize = 1024;

impl ToolNotices {
    /// Adds a header for each kind of notice to the response.
    pub(crate) fn announce(&self, mut response: Response) -> Response {
        for (name, notices) in [
            ("x-ignored-tools", &self.ignored_tools),
            ("x-deferred-tools", &self.deferred_tools),
            ("x-ignored-items", &self.ignored_items),
            ("x-unforced-tools", &self.unforced_tools),
        ] {
            if let Some(value) = header(notices) {
                response.headers_mut().insert(HeaderName::from_static(name), value);
            }
        }
        response
    }
}

/// Returns the notices as a list; what a header cannot hold becomes question marks.
fn header(notices: &[String]) -> Option<HeaderValue> {
    if notices.is_empty() {
        return None;
    }
    let is_plain = |character: &char| matches!(character, ' '..='~');
    let plain = |character: char| Some(character).filter(is_plain).unwrap_or('?');
    let text: String = notices.join(", ").chars().map(plain).take(LONGEST).collect();
    HeaderValue::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_holds_names_of_any_kind() {
        let header = |notices: &[&str]| {
            let notices: Vec<String> = notices.iter().map(|&notice| notice.to_owned()).collect();
            header(&notices).map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(header(&[]), None);
        assert_eq!(header(&["web_search", "a\r\nb: \u{e9}"]).as_deref(), Some("web_search, a??b: ?"));
        assert_eq!(header(&["x".repeat(5_000).as_str()]).unwrap().len(), LONGEST);
    }
}
