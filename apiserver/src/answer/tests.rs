//! Answers that are read, given up, and never asked for.

use super::*;
use futures::{StreamExt, stream};
use http_body_util::BodyExt;
use tokio::sync::oneshot;

fn soon() -> Limit {
    Limit::Until(Instant::now() + Duration::from_millis(50))
}

fn later() -> Limit {
    Limit::Until(Instant::now() + Duration::from_secs(3600))
}

fn followed(body: Body, limit: Limit, held: Arc<()>) -> (Followed, oneshot::Receiver<Sent>) {
    let (told, ended) = oneshot::channel();
    let response =
        follow(Response::new(body), limit, held, |sent| told.send(sent).expect("somebody listens"));
    (response.into_body(), ended)
}

fn endless() -> Body {
    Body::from_stream(stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(b"more"))))
}

#[tokio::test]
async fn tells_how_an_answer_ended_and_how_long_it_was() {
    for limit in [later(), Limit::Stalled(Duration::from_secs(1))] {
        let (body, ended) = followed(Body::from("whole"), limit, Arc::default());
        assert_eq!(http_body::Body::size_hint(&body).exact(), Some(5));
        assert_eq!(body.collect().await.expect("a body").to_bytes(), "whole");
        assert_eq!(ended.await, Ok(Sent { bytes: 5, end: End::Complete }));

        let (body, ended) = followed(Body::empty(), limit, Arc::default());
        assert!(http_body::Body::is_end_stream(&body));
        drop(body);
        assert_eq!(ended.await, Ok(Sent { bytes: 0, end: End::Complete }));

        let (mut body, ended) = followed(endless(), limit, Arc::default());
        drop(body.frame().await.expect("a frame").expect("data"));
        drop(body);
        assert_eq!(ended.await, Ok(Sent { bytes: 4, end: End::Abandoned }));

        let broken = stream::iter([Ok(Bytes::from_static(b"a")), Err(std::io::Error::other("no more"))]);
        let (body, ended) = followed(Body::from_stream(broken), limit, Arc::default());
        assert!(body.collect().await.is_err());
        assert_eq!(ended.await, Ok(Sent { bytes: 1, end: End::Broken }));

        let (body, ended) = followed(Body::from("never asked for"), limit, Arc::default());
        drop(body);
        assert_eq!(ended.await, Ok(Sent { bytes: 0, end: End::Abandoned }));
    }
}

#[tokio::test]
async fn what_is_whole_is_produced_at_once_and_memory_is_held_until_the_last_piece_is_sent() {
    let producing = Arc::new(());
    let (mut body, mut ended) = followed(Body::from("whole"), later(), producing.clone());
    assert_eq!(Arc::strong_count(&producing), 1, "a body in memory counts as being produced");
    let frame = body.frame().await.expect("a frame").expect("data");
    assert!(body.frame().await.is_none());
    drop(body);
    assert!(ended.try_recv().is_err(), "over, although a piece is not sent");
    drop(frame);
    assert_eq!(ended.await, Ok(Sent { bytes: 5, end: End::Complete }));

    let (mut body, ended) = followed(endless(), later(), producing.clone());
    let frame = body.frame().await;
    let mut flushed = Box::pin(body.flushed());
    assert!(futures::poll!(&mut flushed).is_pending());
    drop(frame);
    flushed.await;
    assert_eq!(Arc::strong_count(&producing), 2, "a stream that goes on counts as produced");
    body.cut(End::Late);
    assert_eq!(Arc::strong_count(&producing), 1);
    drop(body);
    assert_eq!(ended.await, Ok(Sent { bytes: 4, end: End::Late }));
}

#[tokio::test]
async fn an_answer_that_nobody_reads_gives_back_what_it_holds_when_its_time_is_up() {
    let held = Arc::new(());
    let holding = held.clone();
    let source = stream::pending::<Result<Bytes, std::io::Error>>().map(move |piece| {
        let _ = &holding;
        piece
    });
    let (body, ended) = followed(Body::from_stream(source), soon(), held.clone());
    assert_eq!(Arc::strong_count(&held), 3);
    let (told, late) = oneshot::channel();
    let body = body.with_timer(move || told.send(()).expect("somebody listens"));
    // Nobody polls the body meanwhile.
    late.await.expect("the timer");
    assert_eq!(Arc::strong_count(&held), 1);
    assert!(body.collect().await.is_err(), "a late answer looked whole");
    assert_eq!(ended.await, Ok(Sent { bytes: 0, end: End::Late }));
}
