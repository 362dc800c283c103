use super::*;

fn frames(sizes: &[usize], limit: u64) -> Frames {
    let pieces: Vec<Result<Bytes, std::io::Error>> =
        sizes.iter().map(|size| Ok(Bytes::from(vec![b'x'; *size]))).collect();
    Frames { body: Body::from_stream(futures::stream::iter(pieces)), left: limit, seen: Gaps::default() }
}

#[tokio::test]
async fn takes_bodies_up_to_the_limit() {
    for sizes in [&[][..], &[10], &[4, 6], &[3, 3, 4]] {
        let taken = frames(sizes, 10).whole(10).await.ok().expect("fits");
        assert_eq!(taken.len(), sizes.iter().sum::<usize>());
    }
    for sizes in [&[11][..], &[4, 7], &[3, 3, 4, 1]] {
        assert!(matches!(frames(sizes, 10).whole(10).await, Err(Broken::TooLong)));
    }
}

#[test]
fn sees_whitespace_between_tokens_however_it_is_cut() {
    for (text, indented) in [
        (r#"{"a b":"c\" d\\","e":[1,"\\\" "]}"#, false),
        (" {\"a\":[]}\n", false),
        (r#"{"a": 1}"#, true),
        ("{\"a\":[\n]}", true),
        (r#"{"a":"\\" }"#, true),
    ] {
        for at in 0..text.len() {
            let mut gaps = Gaps::default();
            gaps.look(&text.as_bytes()[..at]);
            gaps.look(&text.as_bytes()[at..]);
            assert_eq!(gaps.found, indented, "{text} cut at {at}");
        }
    }
}
