use super::*;

const TIMING: Timing = Timing {
    interval: Duration::from_secs(10),
    timeout: Duration::from_secs(5),
    max_age: Duration::from_secs(30),
};

fn of(values: &[&str], own: &str, is_orphan: bool) -> Meaning {
    let values = values.iter().map(|value| (*value).to_owned()).collect();
    meaning(Answer::Record(values), None, own, is_orphan)
}

#[test]
fn only_the_exact_id_is_the_own_one() {
    assert_eq!(of(&["seed-a/3"], "seed-a/3", false), Meaning::Own);
    for values in
        [&["seed-b/4"][..], &["seed-a/4"], &["seed-b/3"], &["seed-a/3", "seed-b/4"], &["seed-a"], &[]]
    {
        assert!(matches!(of(values, "seed-a/3", false), Meaning::Other(_)), "{values:?}");
    }
    // A name server that is behind.
    assert!(matches!(of(&["seed-b/2"], "seed-a/3", false), Meaning::Nothing(_)));
    assert!(matches!(meaning(Answer::Slow, None, "seed-a/3", false), Meaning::Nothing(_)));
    // An Etcd that is gone does not say its new ID.
    assert_eq!(of(&["seed-a/5"], "seed-a/3", true), Meaning::Own);
    assert!(matches!(of(&["seed-b/5"], "seed-a/3", true), Meaning::Other(_)));
    assert!(matches!(of(&["seed-ab/5"], "seed-a/3", true), Meaning::Other(_)));
    assert!(matches!(of(&["other"], "other-id", true), Meaning::Other(_)));
}

#[test]
fn unknown_owner_is_let_through_until_the_confirmation_is_too_old_and_never_after_a_loss() {
    let start = Instant::now();
    let nothing = || Meaning::Nothing("no answer".to_owned());
    let known = |last: Meaning, confirmed| LastAnswer { last: Some((start, last)), confirmed };
    let at =
        |known: &LastAnswer, seconds| judge(known, "seed-a/1", TIMING, start + Duration::from_secs(seconds));
    assert!(at(&known(Meaning::Own, Some(start)), 29).is_ok());
    assert!(at(&known(Meaning::Own, Some(start)), 30).is_err());
    assert!(at(&known(nothing(), Some(start)), 29).is_ok());
    let refused = at(&known(nothing(), Some(start)), 31).expect_err("too old");
    assert_eq!(refused.to_string(), "the owner record was last confirmed 31 s ago: no answer");
    assert!(at(&known(nothing(), None), 0).is_err());
    let lost = at(&known(Meaning::Other(vec!["seed-b/2".to_owned()]), None), 0).expect_err("lost");
    assert_eq!(lost.to_string(), "the owner record names seed-b/2, and this seed is seed-a/1");
    assert!(judge(&LastAnswer::default(), "seed-a/1", TIMING, start).is_err());
}

/// A name server whose TXT record a test changes; it counts questions, and is silent while the value is empty.
async fn server() -> (String, std::sync::Arc<Mutex<(String, usize)>>) {
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    let address = socket.local_addr().expect("an address").to_string();
    let state = std::sync::Arc::new(Mutex::new(("seed-a/1".to_owned(), 0)));
    let shared = state.clone();
    tokio::spawn(async move {
        let mut buffer = [0; 512];
        while let Ok((length, client)) = socket.recv_from(&mut buffer).await {
            let text = {
                let mut state = shared.lock();
                state.1 += 1;
                state.0.clone()
            };
            if text.is_empty() {
                continue;
            }
            let mut answer = buffer[..length].to_vec();
            (answer[2], answer[7]) = (0x84, 1);
            let size = u8::try_from(text.len()).expect("short");
            answer.extend([0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 1, 0, size + 1, size]);
            answer.extend(text.as_bytes());
            socket.send_to(&answer, client).await.expect("sent");
        }
    });
    (address, state)
}

#[tokio::test]
async fn one_query_serves_all_writes_of_an_interval() {
    let (address, state) = server().await;
    let check: OwnerCheck = serde_json::from_value(serde_json::json!({
        "name": "owner.a.org", "id": "seed-a/1", "servers": [address],
    }))
    .expect("an owner check");
    let record = OwnerRecord::new(&check, TIMING);
    let all = futures::future::join_all((0..50).map(|_| record.check())).await;
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    assert_eq!(state.lock().1, 1);
    // A short interval: the loss is seen, and a server that is silent then does not bring the ownership back.
    let timing = Timing { interval: Duration::from_millis(1), timeout: Duration::from_secs(2), ..TIMING };
    let record = OwnerRecord::new(&check, timing);
    record.check().await.expect("the owner");
    state.lock().0 = "seed-b/2".to_owned();
    let lost = record.until_lost().await;
    assert!(matches!(&lost, NotOwner::Lost { values, .. } if values == &["seed-b/2"]), "{lost}");
    state.lock().0 = String::new();
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert!(matches!(record.check().await, Err(NotOwner::Unknown { age: None, .. })));
    let wrong = OwnerRecord::new(&OwnerCheck { servers: Vec::new(), ..check }, TIMING);
    assert!(wrong.check().await.is_err_and(|why| why.to_string().contains("servers is empty")));
}
