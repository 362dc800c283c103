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
