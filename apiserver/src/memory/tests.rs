use std::task::Poll;

use super::*;

const MIB: u64 = 1 << 20;

fn alice() -> Flow {
    Flow::User("alice".into())
}

fn user(number: u64) -> Flow {
    Flow::User(number.to_string().into())
}

#[tokio::test]
async fn room_is_lent_once_and_given_back() {
    let memory = Memory::new(160 * MIB);
    let mut held = memory.reserve(&alice(), 60 * MIB).await.expect("room");
    assert_eq!(held.bytes(), 60 * MIB);
    assert!(memory.reserve_now(&alice(), 60 * MIB).is_none());
    assert!(!held.grow_to(111 * MIB) && held.grow_to(110 * MIB));
    held.shrink_to(30 * MIB);
    assert_eq!(held.bytes(), 30 * MIB);
    let other = memory.reserve_now(&user(1), 80 * MIB).expect("what was given back");
    drop((held, other));
    assert!(memory.reserve_now(&alice(), 110 * MIB).is_some());
}

#[tokio::test]
async fn large_requests_neither_hold_up_small_ones_nor_answers() {
    let memory = Memory::new(160 * MIB);
    let _all = memory.reserve(&alice(), 110 * MIB).await.expect("room");
    assert!(memory.reserve_now(&alice(), 2 * MIB).is_none());
    assert!(memory.reserve_now(&alice(), MIB / 2).is_some());
    let answer = memory.for_answer(&alice(), 20 * MIB).expect("a lane of their own");
    assert!(memory.for_answer(&alice(), 1).is_none());
    drop(answer);
}

#[tokio::test]
async fn a_small_request_that_turns_out_large_takes_from_the_large_lane() {
    let memory = Memory::new(160 * MIB);
    let mut held = memory.reserve(&alice(), MIB / 2).await.expect("room");
    assert!(memory.enlarge(&mut held, 20 * MIB) && held.bytes() == 20 * MIB);
    let other = user(1);
    assert!(
        memory.reserve_now(&other, 100 * MIB).is_none() && memory.reserve_now(&other, 90 * MIB).is_some()
    );
    assert!(!memory.enlarge(&mut held, memory.most() + 20 * MIB));
    held.shrink_to(MIB);
    assert!(memory.reserve_now(&other, 109 * MIB).is_some(), "what was given back is not there");
}

#[tokio::test]
async fn answers_wait_for_their_turn_and_not_for_ever() {
    const SOON: Duration = Duration::from_millis(20);
    let memory = Memory::new(160 * MIB);
    let mut held = Vec::new();
    for number in 0..ANSWERS / STREAMED {
        held.push(memory.to_stream(&user(number), 100 * MIB).await.expect("room"));
    }
    assert!(memory.on_their_way.within(&alice(), SOON, 1).await.is_none());
    assert!(memory.to_send(&alice(), SHORT).await.is_some(), "a short one waits behind long ones");
    let flow = alice();
    let (waiting, ()) = tokio::join!(memory.to_stream(&flow, MIB), async { drop(held.pop()) });
    assert!(waiting.is_some());
    drop((waiting, held));
    let alone = memory.to_send(&alice(), 1000 * MIB).await.expect("its turn");
    assert_eq!(alone.bytes(), ANSWERS);
}

#[tokio::test]
async fn few_read_heads_at_a_time_and_one_user_leaves_turns_to_others() {
    let memory = Memory::new(160 * MIB);
    let (mine, also) = (memory.to_read_heads(&alice()).await, memory.to_read_heads(&alice()).await);
    assert!(mine.is_some() && also.is_some());
    let flow = alice();
    let mut third = Box::pin(memory.to_read_heads(&flow));
    assert!(futures::poll!(&mut third).is_pending(), "one user has more than a half");
    assert!(memory.to_read_heads(&user(1)).await.is_some(), "others wait for one user");
    drop(mine);
    assert!(third.await.is_some());
}

#[tokio::test]
async fn who_finds_no_place_to_wait_is_told_at_once() {
    let memory = Memory::new(160 * MIB);
    let held = memory.to_send(&alice(), ANSWERS).await.expect("room");
    let users: Vec<_> = (0..=QUEUE).map(user).collect();
    let (last, others) = users.split_last().expect("users");
    let mut waiting: Vec<_> = others.iter().map(|one| Box::pin(memory.to_stream(one, MIB))).collect();
    for one in &mut waiting {
        assert!(futures::poll!(one).is_pending());
    }
    let asked = std::pin::pin!(memory.to_stream(last, MIB));
    assert!(matches!(futures::poll!(asked), Poll::Ready(None)), "it waits behind {QUEUE}");
    drop(held);
    let served = futures::future::join_all(waiting.into_iter().take(20)).await;
    assert!(served.iter().all(Option::is_some));
    drop(served);
    let _held = memory.to_send(&alice(), ANSWERS).await.expect("room");
    let next = std::pin::pin!(memory.to_stream(last, MIB));
    assert!(futures::poll!(next).is_pending(), "places are not given back");
}

#[tokio::test]
async fn a_user_that_takes_all_it_may_leaves_others_room_and_places_to_wait() {
    let memory = Memory::new(160 * MIB);
    for mallory in [Flow::Unauthenticated, user(0)] {
        let mut held = Vec::new();
        for bytes in [MIB / 4, 2 * MIB] {
            held.extend(std::iter::from_fn(|| memory.reserve_now(&mallory, bytes)));
            held.extend(std::iter::from_fn(|| memory.for_answer(&mallory, bytes)));
            // Until the next one would wait.
            while let Poll::Ready(sent) = futures::poll!(Box::pin(memory.to_send(&mallory, bytes))) {
                held.extend(sent);
            }
        }
        let mut waiting = Vec::new();
        for _ in 0..2 * QUEUE {
            let mut one = Box::pin(memory.to_stream(&mallory, MIB));
            if futures::poll!(&mut one).is_pending() {
                waiting.push(one);
            }
        }
        assert!(waiting.len() as u64 <= QUEUE / 2, "{mallory:?} has {} places to wait", waiting.len());
        for bytes in [MIB / 4, 2 * MIB] {
            assert!(memory.reserve_now(&alice(), bytes).is_some(), "{mallory:?} {bytes}");
            assert!(memory.for_answer(&alice(), bytes).is_some(), "{mallory:?} {bytes}");
            let sent = futures::poll!(Box::pin(memory.to_send(&alice(), bytes)));
            assert!(matches!(sent, Poll::Ready(Some(_))), "{mallory:?} {bytes}");
        }
    }
}

#[tokio::test]
async fn one_request_that_can_be_served_otherwise_leaves_half_of_its_lane() {
    let memory = Memory::new(160 * MIB);
    assert!(memory.for_answer(&alice(), 21 * MIB).is_none() && memory.for_body(&alice(), 56 * MIB).is_none());
    let held = (memory.for_answer(&alice(), 20 * MIB), memory.for_body(&alice(), 55 * MIB));
    assert!(held.0.is_some() && held.1.is_some());
    assert!(memory.for_answer(&user(1), 10 * MIB).is_some());
    assert!(memory.reserve_now(&user(1), 55 * MIB).is_some());
}

#[tokio::test]
async fn what_never_fits_is_not_waited_for() {
    let memory = Memory::new(160 * MIB);
    for asked in [111 * MIB, u64::MAX] {
        let error = memory.reserve(&alice(), asked).await.expect_err("more than there is");
        assert_eq!(error, TooMuch { asked, most: 110 * MIB });
    }
}
