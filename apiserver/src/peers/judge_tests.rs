use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A server and what it sees of its peers, second by second.
struct Server {
    judge: Judge,
    now: Instant,
    is_ready: bool,
}

impl Server {
    /// Sees each peer answer once.
    fn with(peers: &[&str]) -> Self {
        let mut server = Self { judge: Judge::default(), now: Instant::now(), is_ready: true };
        let answers: Vec<(&str, bool)> = peers.iter().map(|peer| (*peer, true)).collect();
        assert_eq!(server.see(&answers), [""; 0]);
        server
    }

    fn see(&mut self, answers: &[(&str, bool)]) -> Vec<String> {
        self.see_after(SECOND, SECOND, answers)
    }

    fn see_after(&mut self, slept: Duration, took: Duration, answers: &[(&str, bool)]) -> Vec<String> {
        self.now += slept + took;
        let peers: Vec<Peer> = answers.iter().map(|(uid, _)| peer(uid)).collect();
        let answers = peers.iter().zip(answers).map(|(peer, (_, answered))| (peer, *answered)).collect();
        let (now, is_own_ready) = (self.now, self.is_ready);
        self.judge.round(&Round { now, slept, took, is_own_ready, answers })
    }

    /// Sees the same until the peer is lost or so many rounds have passed; gives their number.
    fn until_lost(&mut self, peer: &str, answers: &[(&str, bool)], rounds: usize) -> Option<usize> {
        (1..=rounds).find(|_| self.see(answers).iter().any(|lost| lost == peer))
    }
}

fn peer(uid: &str) -> Peer {
    Peer { name: format!("pod-{uid}"), uid: uid.to_owned(), addresses: Vec::new() }
}

#[test]
fn peer_is_lost_after_three_checks_in_a_row_without_an_answer() {
    let mut server = Server::with(&["b"]);
    assert_eq!(server.until_lost("b", &[("b", false)], 9), Some(3));
    assert_eq!(server.judge.unreachable(), 1);
}

#[test]
fn peer_that_answers_now_and_then_is_not_lost() {
    let mut server = Server::with(&["b"]);
    for _ in 0..20 {
        for answered in [false, false, true] {
            assert_eq!(server.see(&[("b", answered)]), [""; 0]);
        }
    }
    assert_eq!(server.judge.unreachable(), 0);
}

#[test]
fn peer_that_never_answered_this_server_is_not_lost() {
    let mut server = Server::with(&[]);
    assert_eq!(server.until_lost("b", &[("b", false)], 100), None);
    assert_eq!(server.judge.unreachable(), 1);
    server.see(&[("b", true)]);
    assert_eq!(server.until_lost("b", &[("b", false)], 9), Some(3));
}

#[test]
fn server_that_is_not_ready_judges_nobody() {
    let mut server = Server::with(&["b"]);
    server.is_ready = false;
    assert_eq!(server.until_lost("b", &[("b", false)], 100), None);
    server.is_ready = true;
    assert_eq!(server.until_lost("b", &[("b", false)], 9), Some(1));
}

#[test]
fn server_that_hears_none_of_several_peers_judges_nobody() {
    let mut server = Server::with(&["b", "c"]);
    assert_eq!(server.until_lost("b", &[("b", false), ("c", false)], 100), None);
    assert_eq!(server.until_lost("b", &[("b", false), ("c", true)], 9), Some(1));
}

#[test]
fn peer_that_ends_in_order_is_not_lost() {
    let mut server = Server::with(&["b", "c"]);
    server.see(&[("b", false), ("c", true)]);
    server.see(&[("b", false), ("c", true)]);
    // Its endpoint is not ready any more.
    assert_eq!(server.until_lost("b", &[("c", true)], 100), None);
    assert_eq!(server.judge.unreachable(), 0);
    // Another Pod takes its place, and has not answered yet.
    assert_eq!(server.until_lost("d", &[("c", true), ("d", false)], 100), None);
}

#[test]
fn checks_before_a_pause_of_this_process_do_not_count() {
    let long = Duration::from_secs(10);
    for (slept, took) in [(long, SECOND), (SECOND, long)] {
        let mut server = Server::with(&["b"]);
        server.see(&[("b", false)]);
        server.see(&[("b", false)]);
        assert_eq!(server.see_after(slept, took, &[("b", false)]), [""; 0]);
        assert_eq!(server.until_lost("b", &[("b", false)], 9), Some(3));
    }
}

#[test]
fn pod_that_becomes_ready_again_is_marked_less_and_less_often() {
    let mut server = Server::with(&["b"]);
    let mut waits = Vec::new();
    for _ in 0..8 {
        let (since, lost) = (server.now, server.until_lost("b", &[("b", false)], 1000));
        assert!(lost.is_some());
        waits.push((server.now - since).as_secs());
        server.judge.marked("b", server.now);
        // The mark takes it out of the ready endpoints, until its kubelet writes that it is ready.
        server.see(&[]);
    }
    // A round takes two seconds here, and three of them come first.
    assert_eq!(waits, [6, 28, 58, 118, 238, 478, 598, 598]);
}

#[test]
fn marks_are_forgotten_after_half_an_hour() {
    let mut server = Server::with(&["b"]);
    assert_eq!(server.until_lost("b", &[("b", false)], 9), Some(3));
    server.judge.marked("b", server.now);
    for _ in 0..901 {
        server.see(&[("b", true)]);
    }
    assert_eq!(server.until_lost("b", &[("b", false)], 9), Some(3));
    server.judge.marked("b", server.now);
    let marks = |server: &Server| server.judge.0.get("b").map(|seen| seen.marks);
    assert_eq!(marks(&server), Some(1));
    for _ in 0..901 {
        server.see(&[]);
    }
    assert_eq!(marks(&server), None);
}

#[test]
fn reason_why_a_peer_was_not_marked_is_logged_once_until_it_answers() {
    let mut server = Server::with(&["b"]);
    assert_eq!(server.until_lost("b", &[("b", false)], 9), Some(3));
    assert!(server.judge.not_marked("b"));
    assert_eq!(server.see(&[("b", false)]), ["b"]);
    assert!(!server.judge.not_marked("b"));
    server.see(&[("b", true)]);
    assert!(server.judge.not_marked("b"));
}
