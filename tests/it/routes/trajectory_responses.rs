//! `/v1/trajectories/export?format=agent_lightning`: which turns are one response.

use serde_json::json;
use tito::trajectory::{AdapterUsed, Generation};

use super::trajectory_logprobs::{captured, exported, raw, turn};

#[tokio::test]
async fn turns_between_which_nothing_was_added_are_one_response() {
    let sampled = [1; 3];
    let prompt = |parts: &[&[u32]]| parts.concat();
    let of = |parts: &[&[u32]]| turn(&prompt(parts), 0, Some(raw()));
    let adapter = Some(AdapterUsed { name: "a".into(), label: "a@1".into(), checksum: None });
    let app = captured([
        of(&[&[3]]),
        of(&[&[3], &sampled]),
        of(&[&[3], &sampled, &sampled, &[4]]),
        // What another policy sampled between two turns keeps them apart.
        Generation { adapter, ..of(&[&[3], &sampled, &sampled, &[4], &sampled]) },
        of(&[&[3], &sampled, &sampled, &[4], &sampled, &sampled]),
    ]);
    let id = app.get("/v1/trajectories").await.ok()["data"][0]["id"].as_str().unwrap().to_owned();
    let turns = app.get(&format!("/v1/trajectories/{id}")).await.ok()["turns"].clone();
    for (number, reward) in [(0, 0.5), (1, 0.25), (4, 1.0)] {
        let body = json!({ "turn_id": turns[number]["id"], "reward": reward });
        app.post(&format!("/v1/trajectories/{id}/reward"), body).await.ok();
    }
    let lines = exported(&app, "format=agent_lightning").await;
    assert_eq!(lines.len(), 1);
    let triplets = lines[0]["triplets"].as_array().unwrap();
    let told = triplets.iter().map(|triplet| {
        let logprobs = triplet["response"]["logprobs"].as_array().unwrap().len();
        let (prompt, response) = (&triplet["prompt"]["token_ids"], &triplet["response"]["token_ids"]);
        assert_eq!(logprobs, response.as_array().unwrap().len());
        json!([prompt, response, triplet["reward"], triplet["metadata"]["turn_id"]])
    });
    let expected = [
        json!([[3], [1, 1, 1, 1, 1, 1], 0.75, turns[1]["id"]]),
        json!([[3, 1, 1, 1, 1, 1, 1, 4], [1, 1, 1], null, turns[2]["id"]]),
        json!([[3, 1, 1, 1, 1, 1, 1, 4, 1, 1, 1, 1, 1, 1], [1, 1, 1], 1.0, turns[4]["id"]]),
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected);
    assert_eq!(lines[0]["final_reward"], 1.0);
}
