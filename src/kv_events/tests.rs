//! Messages against vLLM's bytes, and sockets against peers that are written here.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use tokio::{io::AsyncWriteExt, net::TcpStream};

use super::{
    messages,
    peers::Peers,
    publisher::{Publishing, publish},
    replay::Kept,
    zmtp::{self, Incoming},
};
use crate::{
    TokenId,
    engine::cache_events::{BlockKeys, CacheEvent, CacheEventBatch, StoredBlocks},
};

fn stored(hashes: &[u64], parent: Option<u64>, token_ids: &[TokenId]) -> StoredBlocks {
    let keys = vec![BlockKeys::default(); hashes.len()];
    StoredBlocks { hashes: hashes.to_vec(), parent, token_ids: token_ids.to_vec(), adapter: None, keys }
}

#[test]
fn messages_are_vllms_byte_for_byte() {
    let golden: BTreeMap<String, String> =
        serde_json::from_str(include_str!("../../tests/golden/kv_events.json")).unwrap();
    let many: Vec<TokenId> = (0..640).collect();
    let image = |digits: &str, start| (digits.repeat(32).into(), start);
    let long = "a".repeat(40);
    let images = vec![
        BlockKeys { images: vec![image("ff", 1)], salt: None },
        BlockKeys { images: vec![image("ff", -1), image("00", -300)], salt: None },
    ];
    let salts = vec![BlockKeys { salt: Some("pepper".into()), ..BlockKeys::default() }, BlockKeys::default()];
    let base = || stored(&[1, 2], None, &[1, 2, 3, 4]);
    let of = |name: &str| match name {
        "one block" => vec![CacheEvent::Stored(stored(&[1], None, &[5, 6]))],
        "sizes of numbers" => vec![CacheEvent::Stored(stored(
            &[u64::MAX, 1 << 32, 255],
            Some(128),
            &[0, 127, 128, 65_535, 65_536, TokenId::MAX],
        ))],
        "many tokens" => {
            vec![CacheEvent::Stored(stored(&(0..20).collect::<Vec<u64>>(), Some(1 << 63), &many))]
        }
        "an adapter" => vec![CacheEvent::Stored(StoredBlocks { adapter: Some((7, long.as_str().into())), ..base() })],
        "a salt" => vec![CacheEvent::Stored(StoredBlocks { keys: salts.clone(), ..base() })],
        "images" => vec![CacheEvent::Stored(StoredBlocks {
            parent: Some(3),
            adapter: Some((1, "a".into())),
            keys: images.clone(),
            ..base()
        })],
        "all kinds" => vec![
            CacheEvent::Removed(vec![1, 1 << 40]),
            CacheEvent::Cleared,
            CacheEvent::Stored(stored(&[9], None, &[5, 6])),
        ],
        other => panic!("{other} is not compared"),
    };
    assert_eq!(golden.len(), 7);
    for (name, expected) in &golden {
        let at = UNIX_EPOCH + Duration::from_millis(1_700_000_000_250);
        let block_size = if name == "many tokens" { 32 } else { 2 };
        let written = messages::batch(&CacheEventBatch { at, events: of(name) }, block_size);
        let written = written.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
        assert_eq!(&written, expected, "{name}");
    }
}

/// Sockets at ports that the system chose, and who publishes there.
async fn served(hwm: usize, buffer_steps: usize) -> (Arc<Peers>, Arc<Kept>, SocketAddr, SocketAddr) {
    let publishing = Publishing {
        endpoint: "tcp://*:0".to_owned(),
        replay_endpoint: Some("tcp://127.0.0.1:0".to_owned()),
        buffer_steps,
        hwm,
        topic: "kv@a".to_owned(),
    };
    let bound = publishing.bind().await.unwrap();
    let (here, replay) = bound.addresses();
    let (peers, kept) = bound.serve();
    (peers, kept, (Ipv4Addr::LOCALHOST, here.unwrap().port()).into(), replay.unwrap())
}

/// A peer of such a type.
async fn peer(address: SocketAddr, own: &str, other: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    zmtp::shake_hands(&mut stream, own, &[other]).await.unwrap();
    stream
}

async fn subscriber(peers: &Peers, address: SocketAddr, topic: &str) -> TcpStream {
    let mut stream = peer(address, "SUB", "PUB").await;
    let before = peers.subscribers();
    stream.write_all(&zmtp::message(&[&[b"\x01", topic.as_bytes()].concat()])).await.unwrap();
    while peers.subscribers() == before {
        tokio::task::yield_now().await;
    }
    stream
}

async fn message(stream: &mut TcpStream) -> Vec<Vec<u8>> {
    match zmtp::read(stream).await.unwrap() {
        Incoming::Message(frames) => frames,
        Incoming::Ping(_) => panic!("a ping"),
    }
}

fn frames(topic: &[u8], number: u64, payload: &[u8]) -> Vec<Vec<u8>> {
    vec![topic.to_vec(), number.to_be_bytes().to_vec(), payload.to_vec()]
}

#[tokio::test]
async fn subscribers_get_numbered_batches_of_their_topic_and_whoever_missed_some_asks_again() {
    let (peers, kept, address, replay) = served(9, 2).await;
    publish(&peers, &kept, 0, &"zero".into());
    let mut all = subscriber(&peers, address, "").await;
    let mut one = subscriber(&peers, address, "kv@").await;
    publish(&peers, &kept, 1, &"one".into());
    publish(&peers, &kept, 2, &"two".into());
    for stream in [&mut all, &mut one] {
        assert_eq!(message(stream).await, frames(b"kv@a", 1, b"one"));
        assert_eq!(message(stream).await, frames(b"kv@a", 2, b"two"));
    }
    let mut asking = peer(replay, "REQ", "ROUTER").await;
    // As many as are kept.
    for (from, expected) in [(0_u64, vec![1, 2]), (2, vec![2]), (3, vec![])] {
        asking.write_all(&zmtp::message(&[b"", &from.to_be_bytes()])).await.unwrap();
        for number in expected {
            let replayed = message(&mut asking).await;
            assert_eq!((&replayed[0][..], &replayed[1][..]), (&b""[..], &b"kv@a"[..]));
            assert_eq!(replayed[2], u64::to_be_bytes(number));
        }
        assert_eq!(message(&mut asking).await, [&b""[..], b"", &[0xFF; 8], b""]);
    }
    asking.write_all(&zmtp::message(&[b"", b"short"])).await.unwrap();
    assert!(zmtp::read(&mut asking).await.is_err(), "whoever asks otherwise is hung up on");
    let mut other = peer(address, "SUB", "PUB").await;
    other.write_all(&zmtp::message(&[b"\x01other"])).await.unwrap();
    other.write_all(b"\x04\x0a\x04PING\x00\x0aabc").await.unwrap();
    // What it subscribes to is read before its ping, and is not what is published.
    let mut answer = [0; 10];
    tokio::io::AsyncReadExt::read_exact(&mut other, &mut answer).await.unwrap();
    assert_eq!((&answer, peers.subscribers()), (b"\x04\x08\x04PONGabc", 2));
}

#[tokio::test]
async fn a_subscriber_that_does_not_read_loses_batches_and_nobody_waits_for_it() {
    let (peers, kept, address, replay) = served(1, 1_000).await;
    let mut slow = subscriber(&peers, address, "").await;
    // Nothing is handed on while this test does not wait: all but one find no room.
    (0..50).for_each(|number| publish(&peers, &kept, number, &"x".into()));
    assert_eq!(message(&mut slow).await, frames(b"kv@a", 0, b"x"));
    publish(&peers, &kept, 50, &"x".into());
    let [_, number, _] = &message(&mut slow).await[..] else { panic!() };
    assert_eq!(number[..], 50_u64.to_be_bytes(), "the gap shows");
    let mut asking = peer(replay, "DEALER", "ROUTER").await;
    asking.write_all(&zmtp::message(&[b"", &1_u64.to_be_bytes()])).await.unwrap();
    for number in 1..51_u64 {
        assert_eq!(message(&mut asking).await[2], number.to_be_bytes());
    }
}

#[tokio::test]
async fn a_subscriber_that_listens_is_called() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let publishing = Publishing {
        endpoint: format!("tcp://{}", listener.local_addr().unwrap()),
        replay_endpoint: None,
        buffer_steps: 0,
        hwm: 9,
        topic: String::new(),
    };
    let (peers, kept) = publishing.bind().await.unwrap().serve();
    let (mut stream, _) = listener.accept().await.unwrap();
    zmtp::shake_hands(&mut stream, "SUB", &["PUB"]).await.unwrap();
    stream.write_all(&zmtp::message(&[b"\x01"])).await.unwrap();
    while peers.subscribers() == 0 {
        tokio::task::yield_now().await;
    }
    publish(&peers, &kept, 7, &"seven".into());
    assert_eq!(message(&mut stream).await, frames(b"", 7, b"seven"));
}

#[tokio::test]
async fn an_endpoint_that_cannot_be_had_is_an_error_with_its_name() {
    let taken = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
    for (endpoint, reason) in [
        (format!("tcp://*:{}", taken.local_addr().unwrap().port()), "cannot listen at tcp://*:"),
        ("ipc:///tmp/events".to_owned(), "ipc:///tmp/events is not supported"),
    ] {
        let (replay_endpoint, topic) = (None, String::new());
        let publishing = Publishing { endpoint, replay_endpoint, buffer_steps: 0, hwm: 1, topic };
        let refused = publishing.bind().await.err().unwrap();
        assert!(refused.contains(reason), "{refused}");
    }
}
