//! Whose turn it is on the threads for heavy work: the user that has used them least.
//!
//! This is start-time fair queuing (Goyal, Vin and Cheng, 1996) with the measured time of each job. A user's virtual time is the
//! time that its jobs took. A user that comes anew starts at the virtual time of the job that began last, so nobody saves time up;
//! what a user is ahead is remembered until the others have caught up or nothing is left to do. No user has more than a certain
//! number of jobs at work at once, so that another user's short job does not wait for several long ones.

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

use crate::shares::Flow;

/// Users without a job that are remembered because they are ahead.
const REMEMBERED: usize = 1024;

/// Jobs that wait, by user.
pub(super) struct Turns<J> {
    users: HashMap<Flow, User<J>>,
    /// The virtual time at which the job began that began last.
    virtual_time: Duration,
    /// Jobs of one user that run at once.
    most: usize,
    /// Counts arrivals and turns: of users that used the same time, the one that waits longest is first.
    order: u64,
}

struct User<J> {
    waiting: VecDeque<J>,
    /// When the jobs began that run.
    running: Vec<Instant>,
    /// The user's virtual time, without the jobs that run.
    used: Duration,
    order: u64,
}

/// A job that runs.
#[derive(Debug)]
pub(super) struct Turn {
    flow: Flow,
    began: Instant,
}

impl<J> User<J> {
    fn new(used: Duration) -> Self {
        Self { waiting: VecDeque::new(), running: Vec::new(), used, order: 0 }
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// The virtual time with what the running jobs took so far.
    fn used_by(&self, now: Instant) -> Duration {
        self.running.iter().map(|began| now.saturating_duration_since(*began)).sum::<Duration>() + self.used
    }
}

impl<J> Turns<J> {
    /// `most`: jobs of one user that run at once.
    pub(super) fn new(most: usize) -> Self {
        Self { users: HashMap::new(), virtual_time: Duration::ZERO, most, order: 0 }
    }

    /// A job waits from now on.
    pub(super) fn push(&mut self, flow: &Flow, job: J) {
        let start = self.virtual_time;
        let order = self.next_order();
        let user = self.users.entry(flow.clone()).or_insert_with(|| User::new(start));
        if user.is_idle() {
            user.used = user.used.max(start);
        }
        if user.waiting.is_empty() {
            user.order = order;
        }
        user.waiting.push_back(job);
    }

    /// The next job, if a user may begin one. It runs until [`Turns::end`].
    pub(super) fn begin(&mut self, now: Instant) -> Option<(Turn, J)> {
        let order = self.next_order();
        let may = |user: &User<J>| !user.waiting.is_empty() && user.running.len() < self.most;
        let users = self.users.iter_mut().filter(|(_, user)| may(user));
        let (flow, user) = users.min_by_key(|(_, user)| (user.used_by(now), user.order))?;
        let job = user.waiting.pop_front()?;
        user.order = order;
        user.running.push(now);
        self.virtual_time = self.virtual_time.max(user.used);
        Some((Turn { flow: flow.clone(), began: now }, job))
    }

    /// A job has ended.
    pub(super) fn end(&mut self, turn: Turn, now: Instant) {
        if let Some(user) = self.users.get_mut(&turn.flow) {
            if let Some(at) = user.running.iter().position(|began| *began == turn.began) {
                user.running.swap_remove(at);
            }
            user.used += now.saturating_duration_since(turn.began);
        }
        self.forget();
    }

    /// Forgets users that have no job and are not ahead; all that have no job, when nobody has one or there are too many.
    fn forget(&mut self) {
        let idle = self.users.values().filter(|user| user.is_idle()).count();
        let all = idle == self.users.len() || idle > REMEMBERED;
        let least = self.virtual_time;
        self.users.retain(|_, user| !user.is_idle() || (!all && user.used > least));
        if self.users.is_empty() {
            self.virtual_time = Duration::ZERO;
        }
    }

    fn next_order(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    /// How many users have jobs, or are ahead.
    pub(super) fn users(&self) -> usize {
        self.users.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> Flow {
        Flow::User(name.into())
    }

    const LONG: Duration = Duration::from_millis(300);
    const SHORT: Duration = Duration::from_millis(1);

    /// Does the jobs one after the other, each of which takes the time that it is; gives who had its turn.
    fn work(turns: &mut Turns<Duration>, now: &mut Instant, jobs: usize) -> Vec<Flow> {
        let one = |_| {
            let (turn, took) = turns.begin(*now)?;
            let flow = turn.flow.clone();
            *now += took;
            turns.end(turn, *now);
            Some(flow)
        };
        (0..jobs).map_while(one).collect()
    }

    #[test]
    fn users_have_turns_for_the_same_time_and_not_for_the_same_number_of_jobs() {
        let (mut turns, mut now) = (Turns::new(1), Instant::now());
        (0..100).for_each(|_| turns.push(&user("long"), LONG));
        (0..1000).for_each(|_| turns.push(&user("short"), SHORT));
        let order = work(&mut turns, &mut now, 700);
        let long = order.iter().filter(|flow| **flow == user("long")).count();
        assert!((2..=3).contains(&long), "{long} of 700 turns were for long jobs");
    }

    #[test]
    fn a_user_that_pauses_stays_ahead_and_one_that_comes_anew_saved_nothing_up() {
        let (mut turns, mut now) = (Turns::new(1), Instant::now());
        (0..500).for_each(|_| turns.push(&user("short"), SHORT));
        turns.push(&user("long"), LONG);
        assert_eq!(work(&mut turns, &mut now, 2).last(), Some(&user("long")));
        // It has nothing that waits, and comes back with more of the same.
        turns.push(&user("long"), LONG);
        assert!(work(&mut turns, &mut now, 250).iter().all(|flow| *flow == user("short")));
        // Who was not there has no more than the others from now on.
        (0..500).for_each(|_| turns.push(&user("new"), SHORT));
        let order = work(&mut turns, &mut now, 40);
        let new = order.iter().filter(|flow| **flow == user("new")).count();
        assert!((15..=25).contains(&new), "{new} of 40 turns");
    }

    #[test]
    fn one_user_runs_no_more_than_its_number_at_once() {
        let (mut turns, now) = (Turns::new(2), Instant::now());
        (0..3).for_each(|_| turns.push(&user("a"), LONG));
        let (first, _) = turns.begin(now).expect("a turn");
        let _second = turns.begin(now).expect("a turn");
        assert!(turns.begin(now).is_none(), "a third job runs");
        turns.push(&user("b"), SHORT);
        assert_eq!(turns.begin(now).expect("a turn").0.flow, user("b"));
        turns.end(first, now + LONG);
        assert_eq!(turns.begin(now + LONG).expect("a turn").0.flow, user("a"));
    }

    #[test]
    fn while_jobs_run_their_time_counts() {
        let (mut turns, now) = (Turns::new(9), Instant::now());
        (0..9).for_each(|_| turns.push(&user("a"), LONG));
        let _running = turns.begin(now).expect("a turn");
        (0..9).for_each(|_| turns.push(&user("b"), LONG));
        let soon = now + SHORT;
        assert_eq!(turns.begin(soon).expect("a turn").0.flow, user("b"));
    }

    #[test]
    fn who_is_idle_is_forgotten() {
        let (mut turns, mut now) = (Turns::new(1), Instant::now());
        (0..10).for_each(|n| turns.push(&user(&n.to_string()), LONG));
        assert_eq!(work(&mut turns, &mut now, 11).len(), 10);
        assert_eq!((turns.users(), turns.virtual_time), (0, Duration::ZERO));
    }
}
