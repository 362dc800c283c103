//! When the API servers of the source answered last, which is when the outage begins for clients.
//!
//! They are told to stop by their Deployment, and go on for a while: the kubelet has to see it, and an API server may drain. So they
//! are asked beside the passes, several times a second, while they are being stopped. A process that takes over in the meantime does not
//! know; then the outage counts from the request to stop.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kube::Client;
use repot_apimachinery::time::Time;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::{
    errors::causes,
    migration::{clock, seed::shoot_api},
};

/// From one request to the next.
const PERIOD: Duration = Duration::from_millis(200);
/// A request without an answer after this time has failed.
const PATIENCE: Duration = Duration::from_secs(1);
/// Nobody is asked any more after this time without a pass that wants to know.
const IDLE: Duration = Duration::from_secs(30);
/// API servers that are asked at a time. Beyond that, outages count from the request to stop.
const MOST: usize = 100;

/// API servers that are being stopped, by the UID of their migration.
#[derive(Clone, Debug, Default)]
pub struct LastAnswers(Arc<Mutex<BTreeMap<String, Asked>>>);

#[derive(Debug)]
struct Asked {
    answered: Option<Time>,
    /// When a pass wanted to know it last.
    wanted: Instant,
}

impl LastAnswers {
    /// Begins to ask the API of a Shoot, or goes on; when it has answered last, as far as it was seen.
    #[must_use]
    pub fn watch(&self, migration: &str, seed: &Client, namespace: &str) -> Option<Time> {
        let mut all = self.lock();
        if let Some(asked) = all.get_mut(migration) {
            asked.wanted = Instant::now();
            return asked.answered;
        }
        if all.len() < MOST {
            all.insert(migration.to_owned(), Asked { answered: None, wanted: Instant::now() });
            let (all, migration) = (self.clone(), migration.to_owned());
            let (seed, namespace) = (seed.clone(), namespace.to_owned());
            tokio::spawn(async move { all.run(&migration, &seed, &namespace).await });
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Asked>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run(&self, migration: &str, seed: &Client, namespace: &str) {
        match shoot_api::client(seed, namespace).await {
            Ok(shoot) => self.ask(migration, &shoot).await,
            Err(error) => tracing::warn!(error = causes(&error), "the API of the Shoot cannot be asked"),
        }
        self.lock().remove(migration);
    }

    async fn ask(&self, migration: &str, shoot: &Client) {
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let answer = timeout(PATIENCE, shoot_api::ask(shoot, "/version")).await;
            let mut all = self.lock();
            let Some(asked) = all.get_mut(migration).filter(|asked| asked.wanted.elapsed() < IDLE) else {
                return;
            };
            if matches!(answer, Ok(Ok(()))) {
                asked.answered = Some(clock::now());
            }
        }
    }
}
