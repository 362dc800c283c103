//! A process that works on a store is killed at any moment, again and again, and each time the history goes on where it
//! was cut: what was asked and not answered may have happened, but not after the death of who asked.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use repot_storage::backend::{self, Embedded, Etcd, embedded};

use super::{
    clients::{Client, NAMES, Recorder},
    lines::Line,
    record::{Answer, Operation, Time},
    runs::{self, Team, judge},
    *,
};
use crate::store::{Lab, tiered_in};

const PLACE: &str = "REPOT_TEST_HISTORY_PLACE";
const NUMBERS: &str = "REPOT_TEST_HISTORY_NUMBERS";
const CLIENTS: u32 = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn embedded_goes_on_after_a_kill() {
    killed(&Lab::embedded().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tiered_goes_on_after_a_kill() {
    killed(&Lab::tiered().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_goes_on_after_its_client_was_killed() {
    killed(&Lab::etcd().await).await;
}

async fn killed(lab: &Lab) {
    let (recorder, rounds) = (Recorder::new(1, 1, false), if period(1).as_secs() > 1 { 60 } else { 5 });
    let store = runs::open(lab.backend().await).await;
    let start = store.current().await.unwrap().0;
    store.close().await;
    let mut asked = 0;
    for round in 0..rounds {
        asked += child(lab, &recorder, round);
        // Whoever comes next sees everything that was acknowledged.
        let store = runs::open(lab.backend().await).await;
        let mut heir = Client::new(1000, &recorder, &store, round);
        heir.list().await;
        for name in 0..NAMES {
            heir.get(name).await;
        }
        let faults = runs::check(&store).await;
        assert!(faults.is_empty(), "{faults:#?}");
        store.close().await;
    }
    let stores = [runs::open(lab.backend().await).await];
    let team = Team::after(&stores, &recorder, start);
    let history = team.end().await;
    judge(&history, &[]);
    assert!(asked > rounds as usize * 20, "hardly anything was asked: {asked}");
    eprintln!("{rounds} kills; {}", runs::counts(&history));
    stores[0].close().await;
}

/// Lets a process work, kills it, and takes in what it told. How much it asked.
fn child(lab: &Lab, recorder: &Recorder, round: u64) -> usize {
    let mut child = spawn(lab, recorder.now(), (round + 1) << 32);
    let id = child.id().to_string();
    let (first_write, written) = std::sync::mpsc::channel();
    let killer = std::thread::spawn(move || {
        // A slow machine needs long for the first write: nothing would be told if it were killed before.
        let _ = written.recv();
        std::thread::sleep(Duration::from_micros(150_000 + (round * 104_729 * 7) % 500_000));
        assert!(Command::new("kill").args(["-9", &id]).status().unwrap().success());
    });
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let told = lines.map_while(Result::ok).filter_map(|line| Line::parse(&line)).inspect(|line| {
        if matches!(line, Line::Answered { answer: Answer::Done(_), .. }) {
            let _ = first_write.send(());
        }
    });
    let told: Vec<_> = told.collect();
    drop(first_write);
    killer.join().unwrap();
    assert!(!child.wait().unwrap().success());
    let first = recorder.change(|history| history.operations.len());
    for line in told {
        take_in(recorder, first, line);
    }
    let end = recorder.now();
    recorder.change(|history| {
        let new = &mut history.operations[first..];
        for operation in new.iter_mut().filter(|operation| operation.answer == Answer::Unknown(None)) {
            // A request to etcd may still be on its way, those to a store in the process died with it.
            let dies = !matches!(lab, Lab::Etcd(_)) && operation.answered == operation.asked;
            operation.answer = Answer::Unknown(dies.then_some(end));
        }
        new.iter().for_each(|operation| assert!(operation.asked < end));
        // Nobody waits for an answer to a look any more.
        new.iter_mut()
            .filter(|operation| operation.call == super::record::Call::Get)
            .filter(|operation| matches!(operation.answer, Answer::Unknown(_)))
            .for_each(|operation| operation.answer = Answer::NotDone);
        new.len()
    })
}

fn take_in(recorder: &Recorder, first: usize, line: Line) {
    let moment = match line {
        Line::Asked { moment, .. } | Line::Answered { moment, .. } => moment,
    };
    recorder.reach(moment);
    recorder.change(|history| match line {
        Line::Asked { number, client, name, moment, call } => {
            assert_eq!(number, history.operations.len() - first, "a line is lost");
            let answer = Answer::Unknown(None);
            let operation = Operation { client, name, call, asked: moment, answered: moment, answer };
            history.operations.push(operation);
        }
        Line::Answered { number, moment, answer } => {
            let operation = &mut history.operations[first + number];
            (operation.answered, operation.answer) = (moment, answer);
        }
    });
}

fn spawn(lab: &Lab, clock: Time, tags: u64) -> Child {
    let place = match lab {
        Lab::Embedded(dir) => format!("embedded {}", dir.path().display()),
        Lab::Tiered(dir) => format!("tiered {}", dir.path().display()),
        Lab::Etcd(process) => format!("etcd {}", process.endpoint()),
    };
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "history::killed::works_until_it_is_killed", "--nocapture", "--test-threads=1"]);
    command.env(PLACE, place).env(NUMBERS, format!("{clock} {tags}"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Run by the tests above, it works until it is killed. As a test, it shows that what it tells is what it did: whoever opens
/// the store next finds that, and the last write of a client may be lost without an answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn works_until_it_is_killed() {
    let (Ok(place), Ok(numbers)) = (std::env::var(PLACE), std::env::var(NUMBERS)) else {
        return tells_what_it_does().await;
    };
    let numbers: Vec<u64> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
    let store = runs::open(backend(&place).await).await;
    let recorder = Recorder::new(numbers[0], numbers[1], true);
    println!(); // the test harness has left a line unfinished
    let until = std::time::Instant::now() + Duration::from_secs(600);
    let work = |number| tokio::spawn(Client::new(number, &recorder, &store, numbers[1] >> 32).work(until));
    let clients: Vec<_> = (0..CLIENTS).map(work).collect();
    for client in clients {
        client.await.unwrap();
    }
}

async fn tells_what_it_does() {
    let (lab, recorder) = (Lab::embedded().await, Recorder::new(1, 1, false));
    assert!(child(&lab, &recorder, 0) > 0, "it told nothing");
    let history = recorder.change(std::mem::take);
    let is_open = |operation: &&Operation| matches!(operation.answer, Answer::Unknown(Some(_)));
    assert!(
        history.operations.iter().filter(is_open).count() <= CLIENTS as usize,
        "{:?}",
        history.operations
    );
    let done = |operation: &Operation| match operation.answer {
        Answer::Done(version) => Some(version),
        _ => None,
    };
    let newest = history.operations.iter().filter_map(done).max().expect("a write");
    let store = runs::open(lab.backend().await).await;
    assert!(store.current().await.unwrap().0 >= newest, "what was acknowledged is gone");
    store.close().await;
}

async fn backend(place: &str) -> Arc<dyn Backend> {
    let (kind, place) = place.split_once(' ').unwrap();
    match kind {
        "embedded" => {
            let options = embedded::Options { min_free_bytes: 0, ..embedded::Options::default() };
            Arc::new(Embedded::open(Path::new(place), options).await.unwrap())
        }
        "tiered" => tiered_in(Path::new(place)).await,
        _ => {
            let lease = Duration::from_secs(2);
            let options = backend::etcd::Options::new(vec![place.into()], "/repot.dev");
            Arc::new(Etcd::connect(backend::etcd::Options { lease, ..options }).await.unwrap())
        }
    }
}
