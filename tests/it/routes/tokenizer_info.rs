//! `GET /tokenizer_info`.

use serde_json::json;

use crate::it::app::{TestApp, shape};

#[tokio::test]
async fn the_configuration_is_told_with_tokens_as_texts() {
    let answer = TestApp::new().tokenizer_info().get("/tokenizer_info").await.ok();
    assert_eq!(
        shape(&answer),
        "bos_token eos_token pad_token unk_token clean_up_tokenization_spaces model_max_length chat_template \
         truncation_side name_or_path is_local local_files_only added_tokens_decoder{0 1 2 320 321 322 323 324 325} \
         backend tokenizer_class"
    );
    assert_eq!(
        (&answer["bos_token"], &answer["added_tokens_decoder"]["320"]),
        (&json!("<|im_start|>"), &json!("<tool_call>"))
    );
    assert_eq!(answer["tokenizer_class"], "CachedTokenizersBackend");
}

#[tokio::test]
async fn it_is_not_there_unless_the_server_was_told_to() {
    let answer = TestApp::new().get("/tokenizer_info").await;
    assert_eq!((answer.status, answer.json()), (404, json!({ "detail": "Not Found" })));
}
