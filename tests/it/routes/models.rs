//! `GET /v1/models`.

use expect_test::expect;

use crate::it::app::{TestApp, redacted};

#[tokio::test]
async fn every_served_name_has_a_card() {
    let answer = TestApp::new().names(&["first", "second"]).get("/v1/models").await.ok();
    let ids: Vec<_> = answer["data"].as_array().unwrap().iter().map(|card| card["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["first", "second"]);
}

#[tokio::test]
async fn a_card_has_every_key_of_vllm_in_its_order() {
    let answer = TestApp::new().get("/v1/models").await.ok();
    assert!(answer["data"][0]["created"].as_u64().unwrap() > 1_700_000_000);
    expect![[r#"
        {
          "object": "list",
          "data": [
            {
              "id": "tiny",
              "object": "model",
              "created": 0,
              "owned_by": "vllm",
              "root": "tests/fixtures/tiny-model",
              "parent": null,
              "max_model_len": 4096,
              "weight_version": "default",
              "permission": [
                {
                  "id": "modelperm-",
                  "object": "model_permission",
                  "created": 0,
                  "allow_create_engine": false,
                  "allow_sampling": true,
                  "allow_logprobs": true,
                  "allow_search_indices": false,
                  "allow_view": true,
                  "allow_fine_tuning": false,
                  "organization": "*",
                  "group": null,
                  "is_blocking": false
                }
              ]
            }
          ]
        }"#]]
    .assert_eq(&format!("{:#}", redacted(answer)));
}

#[tokio::test]
async fn without_a_name_the_model_is_served_as_it_was_given() {
    let answer = TestApp::new().names(&[]).get("/v1/models").await.ok();
    assert_eq!(answer["data"][0]["id"], answer["data"][0]["root"]);
}
