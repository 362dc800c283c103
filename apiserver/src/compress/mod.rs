//! Answers in gzip, for clients that take it: piece by piece and off the threads that serve connections, so that neither
//! memory nor other requests pay for it.

mod choice;
mod encoder;

use axum::body::Body;
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use http::{HeaderValue, Method, Response, header};
use tokio::sync::mpsc;

pub use self::choice::{Compression, UnknownCompression};
use self::encoder::Encoder;
use crate::{call::Call, heavy::UserWork};

/// Shorter answers go as they are, as kube-apiserver's do.
const THRESHOLD: u64 = 128 << 10;
/// How much is compressed in one go.
const BATCH: usize = 256 << 10;
/// Compressed batches that may wait for the connection.
const BATCHES_AHEAD: usize = 2;

/// Compresses an answer where its client takes gzip, `choice` says so and it is long enough. Watches never are: a line must not
/// wait for others in a compressor.
pub(crate) async fn answer(
    choice: Compression,
    call: &Call,
    work: &UserWork,
    response: Response<Body>,
) -> Response<Body> {
    let wanted = choice.applies(&call.headers, call.peer.address) && call.method != Method::HEAD;
    if !wanted || call.info.long_running() || response.headers().contains_key(header::CONTENT_ENCODING) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let hint = http_body::Body::size_hint(&body);
    if hint.upper().is_some_and(|upper| upper <= THRESHOLD) {
        return Response::from_parts(parts, body);
    }
    let pieces = match longer_than_threshold(body, hint.lower()).await {
        Ok(pieces) => pieces,
        Err(short) => return Response::from_parts(parts, short),
    };
    let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
    tokio::spawn(pump(pieces, work.clone(), sender));
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts.headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    Response::from_parts(parts, Body::from_stream(tokio_stream::wrappers::ReceiverStream::new(receiver)))
}

type Piece = Result<Bytes, axum::Error>;
type Pieces = stream::BoxStream<'static, Piece>;

/// The body if it is long; where nobody knows, so much is read that it is known. A short one comes back whole.
async fn longer_than_threshold(body: Body, at_least: u64) -> Result<Pieces, Body> {
    let mut pieces = body.into_data_stream();
    let (mut read, mut length) = (Vec::new(), at_least);
    while length <= THRESHOLD {
        match pieces.next().await {
            Some(Ok(piece)) => {
                length += piece.len() as u64;
                read.push(Ok(piece));
            }
            end => {
                read.extend(end);
                return Err(Body::from_stream(stream::iter(read)));
            }
        }
    }
    Ok(stream::iter(read).chain(pieces).boxed())
}

/// Compresses batch after batch as the client takes them. A failure of the source, or a client that went away, ends it.
async fn pump(mut pieces: impl Stream<Item = Piece> + Unpin, threads: UserWork, sender: mpsc::Sender<Piece>) {
    let (mut encoder, mut left) = (Encoder::new(), Bytes::new());
    loop {
        let batch = batch(&mut pieces, &mut left).await;
        let last = batch.as_ref().map_or(true, Vec::is_empty);
        let done = match batch {
            Ok(batch) => tokio::select! {
                packed = pack(&threads, encoder, batch, last) => packed,
                // The client is gone: nothing waits for its turn any more.
                () = sender.closed() => return,
            },
            Err(error) => Err(error),
        };
        let sent = match done {
            Ok((same, text)) => {
                encoder = same;
                sender.send(Ok(text)).await.is_ok()
            }
            Err(error) => {
                let _ = sender.send(Err(error)).await;
                return;
            }
        };
        if last || !sent {
            return;
        }
    }
}

/// Compresses a batch; gives the compressor back, and what it gave.
async fn pack(
    threads: &UserWork,
    mut encoder: Encoder,
    batch: Vec<Bytes>,
    last: bool,
) -> Result<(Encoder, Bytes), axum::Error> {
    let work = move || encoder.add(&batch, last).map(|text| (encoder, text));
    threads.run(work).await.map_err(axum::Error::new)?.map_err(axum::Error::new)
}

/// The next [`BATCH`] bytes; fewer, or none: the end. `left`: what stays of a longer piece.
async fn batch(
    pieces: &mut (impl Stream<Item = Piece> + Unpin),
    left: &mut Bytes,
) -> Result<Vec<Bytes>, axum::Error> {
    let (mut batch, mut length) = (Vec::new(), 0);
    while length < BATCH {
        if left.is_empty() {
            let Some(piece) = pieces.next().await.transpose()? else { break };
            *left = piece;
        }
        let part = left.split_to(left.len().min(BATCH - length));
        if !part.is_empty() {
            length += part.len();
            batch.push(part);
        }
    }
    Ok(batch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use http_body_util::BodyExt;
    use std::io::Read;

    fn call(method: Method, uri: &str, coding: &str) -> Call {
        let request = http::Request::builder().method(method).uri(uri).header("accept-encoding", coding);
        let request = request.body(Body::empty()).expect("a request");
        Call::begin(request, std::sync::Arc::default()).map_err(|(status, _)| status).expect("a call")
    }

    fn text(length: usize) -> Vec<u8> {
        (0..length).map(|at| b"0123456789abcdef"[(at * at / 7) % 16]).collect()
    }

    fn pieces(text: &[u8]) -> Body {
        let pieces: Vec<Piece> = text.chunks(5000).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        Body::from_stream(stream::iter(pieces))
    }

    async fn whole(response: Response<Body>) -> (bool, Vec<u8>) {
        let coded = response.headers().get(header::CONTENT_ENCODING).is_some_and(|coding| coding == "gzip");
        assert_eq!(coded, response.headers().get_all(header::VARY).iter().any(|v| v == "Accept-Encoding"));
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        let mut plain = Vec::new();
        if coded {
            GzDecoder::new(&bytes[..]).read_to_end(&mut plain).expect("gzip");
        }
        (coded, if coded { plain } else { bytes.to_vec() })
    }

    #[tokio::test]
    async fn compresses_long_answers_for_who_takes_gzip() {
        let get = |coding| call(Method::GET, "/apis/g/v1/rs/a", coding);
        let (long, short) = (text(1 << 20), text(128 << 10));
        for (call, body, text, expected) in [
            (get("gzip"), Body::from(long.clone()), &long, true),
            (get("deflate, gzip"), pieces(&long), &long, true),
            (get("gzip"), pieces(&short), &short, false),
            (get("gzip"), Body::from(short.clone()), &short, false),
            (get("br"), Body::from(long.clone()), &long, false),
            (get("gzip;q=0"), Body::from(long.clone()), &long, false),
            (call(Method::HEAD, "/apis/g/v1/rs/a", "gzip"), Body::from(long.clone()), &long, false),
            (call(Method::GET, "/apis/g/v1/rs?watch=1", "gzip"), pieces(&long), &long, false),
        ] {
            let (coded, plain) =
                whole(answer(Compression::Always, &call, &UserWork::for_tests(), Response::new(body)).await)
                    .await;
            assert_eq!((coded, plain == *text), (expected, true), "{:?}", call.headers);
        }
    }

    #[tokio::test]
    async fn a_source_that_fails_breaks_the_compressed_answer_off() {
        let good = stream::iter((0..100).map(|_| Ok(Bytes::from(text(5000)))));
        let source = good.chain(stream::iter([Err(std::io::Error::other("damaged"))]));
        let call = call(Method::GET, "/apis/g/v1/rs/a", "gzip");
        let response = answer(
            Compression::Always,
            &call,
            &UserWork::for_tests(),
            Response::new(Body::from_stream(source)),
        )
        .await;
        assert!(response.headers().contains_key(header::CONTENT_ENCODING));
        assert!(response.into_body().collect().await.is_err(), "a damaged answer looked whole");
    }

    #[tokio::test]
    async fn reads_no_further_ahead_than_a_few_batches() {
        let read = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counted = read.clone();
        let source = stream::repeat_with(move || {
            counted.fetch_add(100 << 10, std::sync::atomic::Ordering::Relaxed);
            let random: Vec<u8> = (0..6400).flat_map(|_| *uuid::Uuid::new_v4().as_bytes()).collect();
            Ok::<_, std::io::Error>(Bytes::from(random))
        });
        let call = call(Method::GET, "/apis/g/v1/rs/a", "gzip");
        let mut body = answer(
            Compression::Always,
            &call,
            &UserWork::for_tests(),
            Response::new(Body::from_stream(source)),
        )
        .await
        .into_body();
        body.frame().await.expect("a frame").expect("data");
        // One in the client's hand, two in the queue, one at its door, one being made.
        let before = read.load(std::sync::atomic::Ordering::Relaxed);
        assert!(before <= 6 * (BATCH + (100 << 10)), "{before} bytes were read for one batch");
    }
}
