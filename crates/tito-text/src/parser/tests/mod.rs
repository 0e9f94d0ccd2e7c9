pub(super) mod lost;
mod marks;
mod properties;
mod reasoning_marks;
mod recorded;
mod samples;

use super::*;

#[test]
fn ids_are_those_of_vllm_and_never_the_same() {
    let [one, other] = [(), ()].map(|()| ToolCall::new("f".to_owned(), "{}".to_owned()).id);
    assert_ne!(one, other);
    let digits = one.strip_prefix("chatcmpl-tool-").unwrap();
    assert!(digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()), "{one}");
}
