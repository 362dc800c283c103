//! Planted faults, and many schedules at a time.

use std::collections::BTreeMap;

use super::{Build, Model, run};

/// How many schedules are run where nobody asks for another number by `REPOT_SCHEDULES`.
const SCHEDULES: u64 = 10_000;

/// How often a long run says how far it is, in schedules of one thread.
const PROGRESS: u64 = 1_000;

/// A wrong table or a wrong controller, which the schedules have to find.
pub(in crate::tests) struct Fault<M: Model> {
    pub(in crate::tests) name: &'static str,
    pub(in crate::tests) setup: M::Setup,
    pub(in crate::tests) build: fn(&mut Build<M>),
    /// What the simulation says of it.
    pub(in crate::tests) caught: &'static [&'static str],
}

/// The faults that the schedules do not find, or find for another reason.
pub(in crate::tests) fn missed<'a, M: Model>(
    faults: impl Iterator<Item = &'a Fault<M>>,
    sound: impl Fn(M::Setup) -> Build<M>,
    schedules: u64,
) -> Vec<String> {
    let mut missed = Vec::new();
    for fault in faults {
        let mut build = sound(fault.setup);
        (fault.build)(&mut build);
        match (0..schedules).find_map(|seed| run(build, seed).err()) {
            None => missed.push(format!("{}: not caught in {schedules} schedules", fault.name)),
            Some(why) => {
                let first = why.lines().next().unwrap_or_default();
                println!("{}: {first}", fault.name);
                if !fault.caught.iter().any(|rule| first.contains(rule)) {
                    missed.push(format!("{}: caught as {why}", fault.name));
                }
            }
        }
    }
    missed
}

/// How the schedules of all seeds end, on two threads; only each `share`-th of the number that is asked for. Panics at the first that
/// ends badly.
pub(in crate::tests) fn schedules<M: Model>(
    share: u64,
    build: impl Fn(u64) -> Build<M> + Sync,
) -> (u64, BTreeMap<String, u64>) {
    // Read by the compiler: the sources of a pure crate name no environment.
    let asked = option_env!("REPOT_SCHEDULES").and_then(|count| count.parse().ok());
    let count: u64 = asked.unwrap_or(SCHEDULES) / share;
    (count, ends(count, build))
}

/// The same, of this many schedules.
pub(in crate::tests) fn ends<M: Model>(
    count: u64,
    build: impl Fn(u64) -> Build<M> + Sync,
) -> BTreeMap<String, u64> {
    let half = |first: u64| {
        let mut ends = BTreeMap::new();
        for seed in (first..count).step_by(2) {
            let end = run(build(seed), seed).unwrap_or_else(|why| panic!("{why}"));
            *ends.entry(end).or_default() += 1;
            if seed / 2 % PROGRESS == PROGRESS - 1 {
                println!("{} schedules of thread {first} have ended well", seed / 2 + 1);
            }
        }
        ends
    };
    let [mut ends, rest] = std::thread::scope(|scope| {
        let half = &half;
        let threads = [0, 1].map(|first| scope.spawn(move || half(first)));
        threads.map(|thread| thread.join().unwrap_or_else(|why| std::panic::resume_unwind(why)))
    });
    rest.into_iter().for_each(|(end, seen)| *ends.entry(end).or_default() += seen);
    println!("{count} schedules: {ends:#?}");
    ends
}
