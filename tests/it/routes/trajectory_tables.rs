//! `/v1/trajectories/export?format=parquet`: many rows, in groups, and rows that could not be made.

use std::{sync::Arc, time::Duration};

use axum::{body::Body, http::Request};
use futures::StreamExt as _;
use parquet::{
    file::reader::{FileReader, SerializedFileReader},
    record::RowAccessor as _,
};
use tito::{
    store::MemoryStore,
    trajectory::{CapturePolicy, Ended, Generation, Trajectories},
    turn::Capture,
};

use crate::it::app::{MODEL, TestApp, VOCAB_SIZE};

/// More than a group has.
const ROWS: usize = 5000;
/// One of them has an id that the model has not.
const BROKEN: usize = 4500;

fn captured() -> Arc<Trajectories> {
    let store = Arc::new(MemoryStore::new(u64::MAX, Duration::MAX));
    let trajectories =
        Trajectories::open(store, CapturePolicy { bytes: 1 << 30, ttl: None, texts: false, images: true }).unwrap();
    for number in 0..ROWS {
        let odd = if number == BROKEN { VOCAB_SIZE } else { number % 7 };
        let generation = Generation {
            prompt: vec![u32::try_from(odd).unwrap(); 1 + number % 50].into(),
            sampled: vec![1; 3],
            logprobs: vec![-0.5, -0.25, -0.125],
            ranks: vec![1, 1, 2],
            session: Some(format!("session {number}").into()),
            finish: Ended::Eos,
            ..Generation::default()
        };
        trajectories.capture(generation).unwrap();
    }
    Arc::new(trajectories)
}

#[tokio::test]
async fn a_table_goes_out_in_groups_and_says_what_could_not_be_made() {
    let app =
        TestApp::new().captures(Capture { trajectories: captured(), model: MODEL.into(), process: "test".into() });
    let request = Request::get("/v1/trajectories/export?format=parquet&allow_raw=true").body(Body::empty()).unwrap();
    let mut parts = app.send(request).await.into_body().into_data_stream();
    let (mut table, mut longest) = (Vec::new(), 0);
    while let Some(part) = parts.next().await {
        let part = part.unwrap();
        longest = longest.max(part.len());
        table.extend_from_slice(&part);
    }
    assert!(longest < table.len(), "a group went out before the next one was made");
    let reader = SerializedFileReader::new(bytes::Bytes::from(table)).unwrap();
    assert_eq!(reader.num_row_groups(), 2);
    let mut count = 0;
    for (number, row) in reader.get_row_iter(None).unwrap().enumerate() {
        let row = row.unwrap();
        count += 1;
        if number == BROKEN {
            let error = row.get_string(2).unwrap();
            assert!(error.contains(&format!("id {VOCAB_SIZE} is out of the vocabulary")), "{error}");
            assert!(row.get_list(3).is_err() && row.get_list(5).is_err() && row.get_long(7).is_err());
            assert!(row.get_list(23).is_err());
            continue;
        }
        let length = 1 + number % 50;
        assert_eq!(
            (row.get_list(3).unwrap().len(), row.get_long(7).unwrap()),
            (length + 3, i64::try_from(length).unwrap())
        );
        assert_eq!(row.get_list(23).unwrap().len(), 0);
        assert_eq!(*row.get_string(11).unwrap(), format!("session {number}"));
    }
    assert_eq!(count, ROWS);
}
