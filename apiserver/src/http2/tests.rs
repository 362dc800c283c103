//! Clients that do not take what they asked for.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, stream};
use h2::{Reason, client};
use http::StatusCode;
use parking_lot::Mutex;
use tokio::{io::duplex, sync::oneshot, time::timeout};

use super::*;
use crate::answer::{self, End, Limit, Sent};

const SOON: Duration = Duration::from_millis(200);
const DEADLINE: Duration = Duration::from_secs(60);

/// A server that answers one request with a body, and what becomes of the answer.
struct Served {
    sent: oneshot::Receiver<Sent>,
    /// What the answer holds until it is produced, and until it is sent.
    held: Arc<()>,
}

impl Served {
    async fn ended(self) -> (Sent, usize) {
        let sent = timeout(DEADLINE, self.sent).await.expect("it ends").expect("it is told");
        (sent, Arc::strong_count(&self.held))
    }
}

fn serve_body(io: tokio::io::DuplexStream, limit: impl Fn() -> Limit + Send + 'static, body: Body) -> Served {
    let (told, sent) = oneshot::channel();
    let held = Arc::new(());
    let answer = Mutex::new(Some((told, body, held.clone())));
    let service = move |_: Request<Body>| {
        let answered = answer.lock().take().map(|(told, body, held)| {
            let then = {
                let held = held.clone();
                move |sent| {
                    drop(held);
                    told.send(sent).expect("somebody listens");
                }
            };
            answer::follow(Response::new(body), limit(), held, then)
        });
        async move { Ok(answered.expect("one request")) }
    };
    tokio::spawn(async move {
        let settings = Settings::authenticated(200);
        serve(io, settings, settings, &Connection::default(), std::future::pending(), service).await
    });
    Served { sent, held }
}

fn get() -> Request<()> {
    Request::builder().uri("https://localhost/").body(()).expect("a request")
}

fn until_soon() -> Limit {
    Limit::Until(Instant::now() + SOON)
}

fn whole() -> Body {
    Body::from(vec![b'x'; 60_000])
}

fn endless() -> Body {
    Body::from_stream(pieces())
}

fn streamed() -> Body {
    Body::from_stream(pieces().take(60))
}

fn pieces() -> impl stream::Stream<Item = Result<Bytes, std::io::Error>> + Send {
    stream::repeat_with(|| Ok(Bytes::from(vec![b'x'; 1000])))
}

#[tokio::test]
async fn a_response_that_is_not_taken_is_reset_in_time_and_holds_nothing_after_that() {
    for window in [0, 1, 999] {
        for body in [whole, streamed, endless] {
            for limit in [until_soon as fn() -> Limit, || Limit::Stalled(SOON)] {
                let (io, server_io) = duplex(1 << 20);
                let served = serve_body(server_io, limit, body());
                let connection = client::Builder::new().initial_window_size(window).handshake::<_, Bytes>(io);
                let (mut sender, connection) = connection.await.expect("a connection");
                tokio::spawn(connection);
                let (response, _) = sender.send_request(get(), true).expect("sent");
                let response = timeout(DEADLINE, response).await.expect("in time").expect("a response");
                assert_eq!(response.status(), StatusCode::OK);
                let mut body = response.into_body();
                // What comes within the window is not taken either: the window stays as it is.
                let reset = timeout(DEADLINE, async {
                    loop {
                        match body.data().await {
                            Some(Ok(_)) => {}
                            Some(Err(error)) => return error.reason(),
                            None => panic!("an answer that was cut off looks whole"),
                        }
                    }
                });
                assert_eq!(reset.await.expect("a reset"), Some(Reason::CANCEL), "window {window}");
                let (sent, held) = served.ended().await;
                assert_eq!((sent.end, held), (End::Late, 1), "window {window}");
            }
        }
    }
}

#[tokio::test]
async fn a_window_that_is_taken_back_keeps_nothing_in_the_queue() {
    // So little fits into the transport that the rest waits in the queue of the connection.
    let (io, server_io) = duplex(1 << 10);
    let served = serve_body(server_io, until_soon, whole());
    let connection = client::Builder::new().initial_window_size(65_535).handshake::<_, Bytes>(io);
    let (mut sender, mut connection) = connection.await.expect("a connection");
    let (response, _) = sender.send_request(get(), true).expect("sent");
    // Until the whole body is handed over, the client reads the head of the response and nothing of the rest.
    let driven = async {
        let mut response = pin!(response);
        std::future::poll_fn(|cx| {
            let _ = std::pin::Pin::new(&mut connection).poll(cx);
            response.as_mut().poll(cx)
        })
        .await
    };
    let response = timeout(DEADLINE, driven).await.expect("in time").expect("a response");
    connection.set_initial_window_size(0).expect("the first change");
    tokio::spawn(connection);
    let mut body = response.into_body();
    let (mut taken, mut reset) = (0, None);
    while let Some(data) = timeout(DEADLINE, body.data()).await.expect("in time") {
        match data {
            Ok(data) => taken += data.len(),
            Err(error) => {
                reset = error.reason();
                break;
            }
        }
    }
    assert!(taken < 60_000, "all of it was sent before the window was taken back: the test shows nothing");
    assert_eq!(reset, Some(Reason::CANCEL));
    let (sent, held) = served.ended().await;
    assert_eq!((sent.end, held), (End::Late, 1));
}

#[tokio::test]
async fn what_is_taken_arrives_whole_and_a_client_that_leaves_frees_all() {
    for body in [whole, streamed] {
        let (io, server_io) = duplex(4 << 10);
        let served = serve_body(server_io, || Limit::Until(Instant::now() + DEADLINE), body());
        let (mut sender, connection) = client::handshake(io).await.expect("a connection");
        tokio::spawn(connection);
        let (response, _) = sender.send_request(get(), true).expect("sent");
        let mut body = response.await.expect("a response").into_body();
        let mut taken = 0;
        while let Some(data) = body.data().await {
            let length = data.expect("data").len();
            taken += length as u64;
            body.flow_control().release_capacity(length).expect("it came");
        }
        let (sent, held) = served.ended().await;
        assert_eq!((sent, held), (Sent { bytes: taken, end: End::Complete }, 1));
        assert_eq!(taken, 60_000);
    }
    for drops_connection in [false, true] {
        let (io, server_io) = duplex(4 << 10);
        let served = serve_body(server_io, || Limit::Until(Instant::now() + DEADLINE), endless());
        let (mut sender, connection) = client::handshake(io).await.expect("a connection");
        let connection = tokio::spawn(connection);
        let (response, _) = sender.send_request(get(), true).expect("sent");
        let response = response.await.expect("a response");
        if drops_connection {
            connection.abort();
        }
        drop(response);
        let (sent, held) = served.ended().await;
        assert_eq!((sent.end, held), (End::Abandoned, 1));
    }
}

#[tokio::test]
async fn windows_rise_when_the_client_has_shown_who_it_is() {
    windows_rise(false).await;
}

/// Its first request may overtake its acknowledgement of the first settings, which allows no change of them until then.
#[tokio::test]
async fn windows_rise_for_a_client_that_is_known_with_its_first_request() {
    // Which of the two comes first is a matter of chance.
    for _ in 0..30 {
        windows_rise(true).await;
    }
}

async fn windows_rise(known: bool) {
    let (io, server_io) = duplex(4 << 20);
    let shared = Connection::default();
    if known {
        shared.set_authenticated();
    }
    let connection = shared.clone();
    tokio::spawn(async move {
        // Bodies are not read, and requests not answered.
        let service = |request: Request<Body>| async move {
            let _request = request;
            std::future::pending::<Result<Response<Followed>, Infallible>>().await
        };
        let (first, then) = (Settings::UNAUTHENTICATED, Settings::authenticated(200));
        serve(server_io, first, then, &connection, std::future::pending(), service).await
    });
    let (mut sender, connection) = client::handshake::<_>(io).await.expect("a connection");
    tokio::spawn(connection);
    let post = Request::builder().method("POST").uri("https://localhost/").body(()).expect("a request");
    let (_response, mut body) = sender.send_request(post, false).expect("sent");
    let mut sent = 0;
    body.reserve_capacity(1 << 20);
    let mut send = async |most: usize| {
        while sent < most {
            let capacity =
                std::future::poll_fn(|cx| body.poll_capacity(cx)).await.expect("open").expect("capacity");
            body.send_data(Bytes::from(vec![b'x'; capacity]), false).expect("sent");
            body.reserve_capacity(1 << 20);
            sent += capacity;
        }
        sent
    };
    if !known {
        assert_eq!(timeout(DEADLINE, send(65_535)).await.expect("the first window"), 65_535);
        assert!(timeout(SOON, send(65_536)).await.is_err(), "more than the first window");
        shared.set_authenticated();
    }
    assert_eq!(timeout(DEADLINE, send(512 << 10)).await.expect("the larger window"), 512 << 10);
}
