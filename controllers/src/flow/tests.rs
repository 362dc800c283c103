//! One pass, by a flow with one step and two sides that keeps a log of its calls.

use std::{sync::Mutex, time::Duration};

use kube::runtime::controller::Action;
use repot_apimachinery::time::Time;
use repot_plan::{
    flow::{Abort, Flow, LedgerOf, OnFailure, Plan, Plans, Request, Row, SOON, StepContext},
    ledger::{Check, Phase, State},
    named_enum,
    status::to_status,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Driver, Statuses, reconcile};
use crate::{events::EventContent, metrics::Metrics};

named_enum! {
    enum Side {
        Source = "source",
        Destination = "destination",
    }
}

named_enum! {
    enum Step {
        Stopped,
        Started,
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Notes {}

#[derive(Clone, Debug, PartialEq)]
enum Move {}

impl Flow for Move {
    type Side = Side;
    type Step = Step;
    /// Whether the server runs.
    type Observed = bool;
    type Notes = Notes;
    type Effect = &'static str;

    const ABORT_FIELD: &'static str = "spec.abort";

    fn request(_: &bool) -> Request {
        let step_timeout = Duration::from_secs(600);
        Request {
            paused: false,
            abort: Abort::None,
            abandoned: None,
            superseded: None,
            continued: None,
            retry: 0,
            step_timeout,
        }
    }

    fn cleanup(_: &StepContext<'_, Self>) -> Vec<&'static str> {
        Vec::new()
    }

    fn data_locations(_: &Notes) -> String {
        String::new()
    }
}

static PLANS: Plans<Move> = Plans { versions: &[&PLAN] };

static PLAN: Plan<Move> = Plan {
    kind: "Move",
    version: 1,
    forward: &[
        Row {
            does: "Stopped.",
            advice: "wait",
            on_failure: OnFailure::Fail,
            effects: |_| vec!["stop", "fence"],
            ..Row::new(Side::Source, Step::Stopped, |context| match context.observed {
                true => Check::waiting("Stopping", "it runs"),
                false => Check::Met("it is stopped".into()),
            })
        },
        Row {
            after: &[Step::Stopped],
            does: "Started.",
            advice: "wait",
            on_failure: OnFailure::Fail,
            effects: |_| vec!["start"],
            ..Row::new(Side::Destination, Step::Started, |_| Check::waiting("Starting", "it starts"))
        },
    ],
    rollback: &[],
    point_of_no_return: None,
    needs_rollback: |_| false,
    fields: &[],
    unpausable_from: None,
    side_limit: Duration::from_secs(1800),
    committed_side_limit: Duration::from_secs(1800),
};

#[derive(Debug, PartialEq, thiserror::Error)]
enum Failure {
    #[error("the object was changed")]
    Conflict,
    #[error("the server is away")]
    Away,
}

/// Builds the failure that a call reports.
type MakeFailure = fn() -> Failure;

/// A driver whose object is its status: one part for each side.
struct Fake {
    side: Side,
    status: Value,
    is_running: bool,
    /// Calls that fail.
    failing: Vec<(&'static str, MakeFailure)>,
    calls: Mutex<Vec<String>>,
    metrics: Metrics,
    now: Time,
}

impl Fake {
    fn new(side: Side, status: Value) -> Self {
        let metrics = Metrics::new().expect("metrics");
        let (failing, calls, now) = (Vec::new(), Mutex::default(), Time(1_010));
        Self { side, status, is_running: true, failing, calls, metrics, now }
    }

    fn call(&self, name: &str) -> Result<(), Failure> {
        self.calls.lock().expect("no panic").push(name.to_owned());
        let failing = self.failing.iter().find(|(failing, _)| *failing == name);
        failing.map_or(Ok(()), |(_, failure)| Err(failure()))
    }

    fn calls(&self) -> Vec<String> {
        self.calls.lock().expect("no panic").clone()
    }
}

impl Driver for Fake {
    type Flow = Move;
    type Object = Value;
    type Observation = bool;
    type Error = Failure;

    fn side(&self) -> Side {
        self.side
    }

    fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    fn plans(&self) -> &'static Plans<Move> {
        &PLANS
    }

    fn now(&self) -> Time {
        self.now
    }

    fn title(&self) -> String {
        "Move a/b".to_owned()
    }

    async fn read(&self) -> Result<Option<Value>, Failure> {
        self.call("read").map(|()| (!self.status.is_null()).then(|| self.status.clone()))
    }

    fn statuses(&self, object: &Value) -> Statuses<Side> {
        let (own, other) = match self.side {
            Side::Source => ("source", Side::Destination),
            Side::Destination => ("destination", Side::Source),
        };
        let others = object.get(repot_plan::named::Named::name(other)).map(|status| (other, status.clone()));
        Statuses { own: object.get(own).cloned().unwrap_or(json!({})), others: others.into_iter().collect() }
    }

    async fn observe(&self, _: &Value, _: &LedgerOf<Move>, _: Time) -> Result<bool, Failure> {
        self.call("observe").map(|()| self.is_running)
    }

    fn facts<'a>(&self, observation: &'a bool) -> &'a bool {
        observation
    }

    async fn record(
        &self,
        object: &Value,
        _: &bool,
        _: &LedgerOf<Move>,
        next: &LedgerOf<Move>,
    ) -> Result<Value, Failure> {
        self.call("record")?;
        self.call(&format!("{:?} {}", next.phase, next.reason))?;
        Ok(object.clone())
    }

    async fn act(&self, _: &Value, _: &bool, effect: &&'static str) -> Result<(), Failure> {
        self.call(effect)
    }

    async fn leave_alone(&self, _: &Value, message: &str) -> Result<(), Failure> {
        self.call(&format!("leave alone: {message}"))
    }

    async fn publish(&self, _: &Value, event: EventContent) {
        drop(self.call(&format!("event {}", event.reason)));
    }

    fn is_conflict(&self, error: &Failure) -> bool {
        *error == Failure::Conflict
    }
}

fn running(steps: &[(Step, State)]) -> Value {
    let record = |state| repot_plan::ledger::Record {
        state,
        reason: "Stopping".into(),
        message: "it runs; wait".into(),
        started: Some(Time(1_000)),
        completed: (state == State::Succeeded).then_some(Time(1_005)),
        attempts: 1,
    };
    let steps = steps.iter().map(|(step, state)| (*step, record(*state))).collect();
    let (started, observed) = (Some(Time(1_000)), Some(Time(1_000)));
    let (reason, message) = ("Stopping".to_owned(), "Stopped: it runs; wait".to_owned());
    let phase = Phase::Running;
    let ledger = LedgerOf::<Move> {
        version: 1,
        phase,
        reason,
        message,
        started,
        observed,
        steps,
        ..Default::default()
    };
    to_status(&PLAN, &ledger)
}

#[tokio::test]
async fn a_step_is_recorded_in_one_pass_and_its_effects_are_carried_out_in_the_next() {
    let driver = Fake::new(Side::Source, json!({"source": running(&[])}));
    assert_eq!(reconcile(&driver).await, Ok(Action::requeue(SOON)));
    assert_eq!(driver.calls(), ["read", "observe", "record", "Running Stopping", "event StoppedBegun"]);
    let driver = Fake::new(Side::Source, json!({"source": running(&[(Step::Stopped, State::Running)])}));
    reconcile(&driver).await.expect("a pass");
    assert_eq!(driver.calls(), ["read", "observe", "stop", "fence"]);
}

#[tokio::test]
async fn nothing_is_carried_out_unless_the_record_is_stored() {
    let mut driver = Fake::new(Side::Source, json!({"source": running(&[(Step::Stopped, State::Running)])}));
    driver.is_running = false;
    driver.failing = vec![("record", || Failure::Conflict)];
    assert_eq!(reconcile(&driver).await, Err(Failure::Conflict));
    assert_eq!(driver.calls(), ["read", "observe", "record"]);
    driver.failing = vec![("record", || Failure::Away)];
    assert_eq!(reconcile(&driver).await, Err(Failure::Away));
    driver.failing = vec![("observe", || Failure::Away)];
    assert_eq!(reconcile(&driver).await, Err(Failure::Away));
}

#[tokio::test]
async fn an_effect_that_fails_does_not_stop_the_others() {
    let mut driver = Fake::new(Side::Source, json!({"source": running(&[(Step::Stopped, State::Running)])}));
    driver.failing = vec![("stop", || Failure::Away)];
    reconcile(&driver).await.expect("the effect is requested again by the next reconcile");
    assert_eq!(driver.calls(), ["read", "observe", "stop", "event EffectFailed", "fence"]);
    // What was decided on an object that has changed is decided anew at once.
    let status = driver.status.clone();
    let driver = Fake { failing: vec![("stop", || Failure::Conflict)], ..Fake::new(Side::Source, status) };
    assert_eq!(reconcile(&driver).await, Err(Failure::Conflict));
    assert_eq!(driver.calls(), ["read", "observe", "stop", "fence"]);
}

#[tokio::test]
async fn a_side_goes_by_what_the_other_one_has_recorded() {
    let own = running(&[]);
    let waiting = json!({"source": running(&[(Step::Stopped, State::Running)]), "destination": own});
    let driver = Fake::new(Side::Destination, waiting);
    reconcile(&driver).await.expect("a pass");
    assert_eq!(driver.calls()[2..], ["record", "Running WaitingForOtherSide"]);
    let reached = json!({"source": running(&[(Step::Stopped, State::Succeeded)]), "destination": own});
    let driver = Fake::new(Side::Destination, reached);
    reconcile(&driver).await.expect("a pass");
    assert_eq!(driver.calls()[2..], ["record", "Running Starting", "event StartedBegun"]);
}

#[tokio::test]
async fn a_status_that_cannot_be_read_is_left_alone() {
    let rarely = Ok(Action::requeue(Duration::from_secs(300)));
    // Of a newer version, of either side: with a message in the status.
    for side in ["source", "destination"] {
        let mut status = json!({"source": running(&[]), "destination": running(&[])});
        status[side]["planVersion"] = 2.into();
        status[side]["steps"] = json!([{"name": "StepOfVersion2"}]);
        let driver = Fake::new(Side::Source, status);
        assert_eq!(reconcile(&driver).await, rarely);
        let calls = driver.calls();
        assert!(
            calls[1].contains("version 2 of the plan") && calls[1].contains("upgrade this controller"),
            "{calls:?}"
        );
        assert_eq!(calls[2..], ["event UnknownPlanVersion"]);
    }
    // A damaged one stays as it is.
    let driver = Fake::new(Side::Source, json!({"source": {"phase": "Sleeping"}}));
    assert_eq!(reconcile(&driver).await, rarely);
    assert_eq!(driver.calls(), ["read", "event StatusUnreadable"]);
}

#[tokio::test]
async fn an_object_that_is_gone_is_not_looked_at_again() {
    let driver = Fake::new(Side::Source, Value::Null);
    assert_eq!(reconcile(&driver).await, Ok(Action::await_change()));
    assert_eq!(driver.calls(), ["read"]);
}

/// The samples of metrics of steps.
fn step_samples(driver: &Fake) -> Vec<String> {
    let text = String::from_utf8(driver.metrics.render().expect("metrics")).expect("UTF-8");
    let is_step = |line: &&str| line.starts_with("repot_flow_step") && !line.contains("_bucket");
    text.lines().filter(is_step).map(str::to_owned).collect()
}

#[tokio::test]
async fn steps_are_counted_once_their_end_is_recorded() {
    let running = json!({"source": running(&[(Step::Stopped, State::Running)])});
    let mut driver = Fake::new(Side::Source, running.clone());
    reconcile(&driver).await.expect("a reconcile");
    assert_eq!(step_samples(&driver), [""; 0], "the step runs");
    driver.is_running = false;
    driver.failing = vec![("record", || Failure::Conflict)];
    reconcile(&driver).await.expect_err("the record is not stored");
    assert_eq!(step_samples(&driver), [""; 0], "no end is recorded");
    driver.failing.clear();
    reconcile(&driver).await.expect("a reconcile");
    let count = r#"repot_flow_step_duration_seconds_count{flow="Move",step="Stopped"} 1"#;
    assert!(step_samples(&driver).iter().any(|line| line == count), "{:?}", step_samples(&driver));
    // It runs beyond its limit.
    let driver = Fake { now: Time(9_000), ..Fake::new(Side::Source, running) };
    reconcile(&driver).await.expect("a reconcile");
    let failed = r#"repot_flow_steps_failed_total{flow="Move",reason="Stopping",step="Stopped"} 1"#;
    assert!(step_samples(&driver).iter().any(|line| line == failed), "{:?}", step_samples(&driver));
}
