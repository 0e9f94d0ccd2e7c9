//! Connections over pipes in memory.

use futures::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;

const SOON: Duration = Duration::from_millis(1);
const NEVER: Duration = Duration::from_hours(1);

fn connections(most: usize, patience: Patience) -> Connections {
    Connections::new(most, patience)
}

fn patient() -> Patience {
    Patience { head: NEVER, stall: Some(NEVER), silence: Duration::ZERO }
}

/// The server's end of a connection, and the client's.
fn open(connections: &Connections) -> (Patient<DuplexStream>, DuplexStream) {
    let (server, client) = duplex(64);
    (connections.opened(server, "peer".to_owned()), client)
}

/// Reads what is there; how many bytes, or `None` where there are none yet.
fn read(server: &mut Patient<DuplexStream>) -> Option<usize> {
    server.read(&mut [0; 256]).now_or_never().map(Result::unwrap)
}

#[tokio::test]
async fn a_client_that_does_not_read_is_hung_up_on_and_one_that_reads_is_not() {
    let connections = connections(9, Patience { stall: Some(SOON), ..patient() });
    let (mut server, client) = open(&connections);
    let error = server.write_all(&[0; 65]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    drop((server, client));
    let (mut server, mut client) = open(&connections);
    let (written, read) =
        tokio::join!(async { server.write_all(&[0; 6_400]).await.map(|()| server.connection()) }, async {
            client.read_exact(&mut [0; 6_400]).await
        });
    assert_eq!(read.unwrap(), 6_400);
    assert_eq!(written.unwrap().to_string(), "peer");
}

#[tokio::test]
async fn without_a_bound_a_client_may_read_whenever_it_likes() {
    let connections = connections(9, Patience { stall: None, ..patient() });
    let (mut server, _client) = open(&connections);
    assert!(server.write_all(&[0; 65]).now_or_never().is_none());
    assert!(server.stall.is_none(), "no clock runs");
}

#[tokio::test]
async fn a_request_that_does_not_go_on_ends_its_connection() {
    let connections = connections(9, Patience { head: SOON, ..patient() });
    let (mut server, mut client) = open(&connections);
    client.write_all(b"POST /v1/comp").await.unwrap();
    let mut text = String::new();
    assert_eq!(server.read_to_string(&mut text).await.unwrap(), 13, "the rest does not come");
}

#[tokio::test]
async fn no_clock_runs_between_requests_within_one_and_for_http2() {
    let connections = connections(9, Patience { head: Duration::ZERO, ..patient() });
    let (mut server, mut client) = open(&connections);
    assert_eq!(read(&mut server), None, "nothing came yet");
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    assert_eq!(read(&mut server), Some(18));
    let request = server.connection().begin();
    client.write_all(b"its body").await.unwrap();
    assert_eq!((read(&mut server), read(&mut server)), (Some(8), None));
    drop(request);
    assert_eq!(read(&mut server), None);
    let (mut server, mut client) = open(&connections);
    for part in [&HTTP2[..5], &HTTP2[5..], b"frames"] {
        client.write_all(part).await.unwrap();
        assert_eq!(read(&mut server), Some(part.len()));
    }
    assert_eq!(read(&mut server), None);
}

#[tokio::test]
async fn where_there_are_too_many_connections_those_that_were_silent_for_longest_go() {
    let connections = connections(16, patient());
    let mut open: Vec<_> = (0..16).map(|_| self::open(&connections)).collect();
    let answered = open[0].0.connection().begin();
    assert!(open[1].0.write_all(&[0; 65]).now_or_never().is_none(), "its client has yet to read");
    for (server, _) in &mut open {
        assert_eq!(read(server), None);
    }
    // It was heard of last.
    open[2].1.write_all(b"G").await.unwrap();
    assert_eq!((read(&mut open[2].0), read(&mut open[2].0)), (Some(1), None));
    let mut room = Box::pin(connections.room());
    assert!((&mut room).now_or_never().is_none(), "none has ended yet");
    let ended: Vec<usize> = (0..16).filter(|number| read(&mut open[*number].0) == Some(0)).collect();
    assert_eq!(ended, [3, 4], "an eighth of them");
    drop(open.remove(4));
    room.await;
    assert_eq!(connections.len(), 15);
    drop((answered, open));
    assert_eq!(connections.len(), 0);
}

#[tokio::test]
async fn a_client_whose_request_may_be_on_its_way_is_not_silent() {
    let connections = connections(1, patient());
    let (_server, mut client) = open(&connections);
    let mut room = Box::pin(connections.room());
    assert!((&mut room).now_or_never().is_none());
    assert!(!connections.is_closing(), "nobody has read it yet");
    client.write_all(b"GET / HT").await.unwrap();
    assert_eq!(connections.close_longest_silent(), 0, "nobody has read it yet");
    let connections = self::connections(1, Patience { silence: NEVER, ..patient() });
    let (mut server, mut client) = open(&connections);
    assert_eq!((read(&mut server), connections.close_longest_silent()), (None, 0), "it has just come");
    client.write_all(b"GET / HT").await.unwrap();
    assert_eq!((read(&mut server), read(&mut server)), (Some(8), None));
    assert_eq!(connections.close_longest_silent(), 0, "the rest of the head may be on its way");
}

#[tokio::test]
async fn a_head_that_does_not_come_to_its_end_makes_room_for_others() {
    let connections = connections(1, patient());
    let (mut server, mut client) = open(&connections);
    client.write_all(b"GET / HT").await.unwrap();
    assert_eq!((read(&mut server), read(&mut server)), (Some(8), None));
    assert_eq!(connections.close_longest_silent(), 1);
    client.write_all(b"TP").await.unwrap();
    assert_eq!((read(&mut server), read(&mut server)), (Some(2), Some(0)), "a little more of it changes nothing");
    let request = server.connection().begin();
    assert_eq!(read(&mut server), None, "the request that was just whole is answered");
    drop(request);
}

#[tokio::test]
async fn a_request_that_comes_while_its_connection_is_closed_is_served() {
    let connections = connections(1, patient());
    let (mut server, mut client) = open(&connections);
    assert_eq!((read(&mut server), connections.close_longest_silent()), (None, 1));
    client.write_all(b"GET /").await.unwrap();
    assert_eq!((read(&mut server), read(&mut server)), (Some(5), None));
    assert!(!connections.is_closing());
}

#[tokio::test]
async fn empty_lines_and_pings_keep_no_place() {
    let connections = connections(1, patient());
    for sent in [&b"\r\n\n"[..], HTTP2] {
        let (mut server, mut client) = open(&connections);
        let before = server.connection().state.lock().used;
        client.write_all(sent).await.unwrap();
        assert_eq!((read(&mut server), read(&mut server)), (Some(sent.len()), None));
        client.write_all(b"\n").await.unwrap();
        assert_eq!((read(&mut server), read(&mut server)), (Some(1), None));
        let connection = server.connection();
        assert_eq!(connection.state.lock().silent_since(Duration::ZERO), Some(before), "{sent:?}");
    }
}

/// What TLS does: it takes all that is written, and a flush waits until the client has read.
struct Sluggish(bool);

impl AsyncRead for Sluggish {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for Sluggish {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(Ok(()));
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn a_flush_that_came_to_its_end_is_no_answer_that_waits() {
    let connections = connections(1, patient());
    let mut server = connections.opened(Sluggish(false), "peer".to_owned());
    server.write_all(b"an answer").await.unwrap();
    assert!(server.flush().now_or_never().is_none());
    assert!(server.connection().state.lock().writing);
    server.flush().await.unwrap();
    assert!(!server.connection().state.lock().writing && server.stall.is_none());
}

#[tokio::test]
async fn an_empty_line_before_a_request_begins_none() {
    let connections = connections(9, Patience { head: Duration::ZERO, ..patient() });
    let (mut server, mut client) = open(&connections);
    client.write_all(b"\r\n").await.unwrap();
    assert_eq!((read(&mut server), read(&mut server)), (Some(2), None));
    assert!(server.head.is_none(), "no clock runs");
    client.write_all(b"\r\nG").await.unwrap();
    let mut text = String::new();
    assert_eq!(server.read_to_string(&mut text).await.unwrap(), 3, "the rest does not come");
}

#[test]
fn the_log_says_once_in_a_while_that_there_is_no_room() {
    let connections = connections(1, patient());
    assert_eq!([connections.may_warn(), connections.may_warn()], [true, false]);
}

#[tokio::test]
async fn where_all_connections_are_in_use_the_next_one_waits_for_one_that_ends() {
    let connections = connections(2, patient());
    let used = [open(&connections), open(&connections)];
    let answered = used.each_ref().map(|(server, _)| server.connection().begin());
    let mut room = Box::pin(connections.room());
    assert!((&mut room).now_or_never().is_none());
    let [first, second] = used;
    drop(first);
    room.await;
    drop((second, answered));
}

#[tokio::test]
async fn a_system_without_room_gets_some_from_silent_connections() {
    let connections = connections(9, patient());
    let (mut silent, _client) = open(&connections);
    let waiting = tokio::spawn(async move { silent.read(&mut [0; 9]).await });
    tokio::task::yield_now().await;
    connections.make_room(&io::Error::from(io::ErrorKind::ConnectionReset)).await;
    assert!(!waiting.is_finished(), "that was the client's doing");
    connections.make_room(&io::Error::other("too many open files")).await;
    assert_eq!(waiting.await.unwrap().unwrap(), 0, "its task was woken");
}
