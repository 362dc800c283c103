//! The flow: its types, and its tables.

use std::time::Duration;

use repot_api::conditions::Reason;
use serde::{Deserialize, Serialize};

use crate::{
    flow::{Abort, Flow, OnFailure, Plan, Plans, Proof, Request, Row, StepContext, Timeout},
    ledger::Check,
    named_enum,
};

named_enum! {
    /// Who works on the move.
    pub(super) enum Side {
        Source = "source",
        Destination = "destination",
    }
}

named_enum! {
    /// Steps of the move.
    pub(super) enum Step {
        BucketReadable,
        WarmCopied,
        WriterStopped,
        Exported,
        OwnerMoved,
        Imported,
        LeaseExpired,
        Serving,
        SourceReleased,
        DestinationStopped,
        OwnerRestored,
        WriterStarted,
    }
}

/// Whether the source takes part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    #[default]
    Planned,
    /// The source is dead, and what it exported last is served.
    Forced,
}

/// What a side observes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Observed {
    pub(super) mode: Mode,
    pub(super) abort: Abort,
    pub(super) is_abort_locked: bool,
    pub(super) is_large: bool,
    /// Writers of the source: wanted, running, and who set the number.
    pub(super) writers: (u32, u32, String),
    pub(super) owner: Option<(Side, u64)>,
    /// Writes in the bucket, once the source has exported all of them.
    pub(super) exported: Option<usize>,
    /// Writes in the copy of the destination.
    pub(super) copied: Option<usize>,
    pub(super) serves: bool,
    pub(super) is_released: bool,
}

/// What a side remembers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Notes {
    /// How many writers there were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) writers: Option<u32>,
    /// How many writes were exported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) exported: Option<usize>,
    /// Whether the destination was changed.
    pub(super) is_touched: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Effect {
    Writers { count: u32, fence: &'static str },
    Export,
    WarmCopy,
    Copy,
    NoCopy,
    Owner { side: Side, epoch: u64 },
    Server,
    Released,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Move {}

impl Flow for Move {
    type Side = Side;
    type Step = Step;
    type Observed = Observed;
    type Notes = Notes;
    type Effect = Effect;

    const ABORT_FIELD: &'static str = "spec.abort";

    fn request(observed: &Observed) -> Request {
        let step_timeout = Duration::from_secs(600);
        Request {
            paused: false,
            abort: observed.abort,
            abandoned: None,
            superseded: None,
            continued: None,
            retry: 0,
            step_timeout,
        }
    }

    fn cleanup(_: &StepContext<'_, Self>) -> Vec<Effect> {
        Vec::new()
    }

    fn data_locations(notes: &Notes) -> String {
        notes.exported.map_or_else(String::new, |count| format!("the bucket holds {count} writes"))
    }

    fn takes_part(observed: &Observed, side: Side) -> bool {
        observed.mode == Mode::Planned || side == Side::Destination
    }

    fn may_abort(context: &StepContext<'_, Self>) -> Result<(), Reason> {
        match context.observed.is_abort_locked {
            true => Err(Reason::new("Locked", "the move is locked")),
            false => Ok(()),
        }
    }
}

/// How long the source may serve after the record names another owner: TTL, check interval and grace.
pub(super) const LEASE: Duration = Duration::from_secs(30 + 10 + 5);

pub(super) type Context<'a> = StepContext<'a, Move>;

pub(super) static PLANS: Plans<Move> = Plans { versions: &[&MOVE] };

pub(super) static MOVE: Plan<Move> = Plan {
    kind: "Move",
    version: 1,
    forward: FORWARD,
    rollback: ROLLBACK,
    point_of_no_return: Some(Step::Serving),
    needs_rollback: |notes| notes.writers.is_some() || notes.is_touched,
    fields: &["exported", "isTouched", "writers"],
    unpausable_from: None,
    side_limit: Duration::from_secs(1800),
    committed_side_limit: Duration::from_secs(1800),
};

/// A version in which the owner changes before the export.
pub(super) static MOVE_2: Plan<Move> = Plan { version: 2, forward: FORWARD_2, ..MOVE };

static FORWARD: &[Row<Move>] = &[
    BUCKET_READABLE,
    WARM_COPIED,
    WRITER_STOPPED,
    EXPORTED,
    OWNER_MOVED,
    IMPORTED,
    LEASE_EXPIRED,
    SERVING,
    RELEASED,
];

static FORWARD_2: &[Row<Move>] = &[
    BUCKET_READABLE,
    WARM_COPIED,
    WRITER_STOPPED,
    Row { after: &[Step::WriterStopped], ..OWNER_MOVED },
    Row { after: &[Step::OwnerMoved], ..LEASE_EXPIRED },
    Row { after: &[Step::LeaseExpired], ..EXPORTED },
    IMPORTED,
    Row { after: &[Step::Imported], ..SERVING },
    RELEASED,
];

const BUCKET_READABLE: Row<Move> = Row {
    does: "The destination reads the bucket.",
    advice: "check the Secret",
    ..Row::new(Side::Destination, Step::BucketReadable, |_| Check::Met("the bucket is read".into()))
};

const WARM_COPIED: Row<Move> = Row {
    after: &[Step::BucketReadable],
    guard: |context| context.observed.is_large,
    does: "A large volume is copied ahead.",
    on_failure: OnFailure::Skip,
    advice: "nothing",
    effects: |_| vec![Effect::WarmCopy],
    on_start: |_, notes| notes.is_touched = true,
    ..Row::new(Side::Destination, Step::WarmCopied, is_warm)
};

const WRITER_STOPPED: Row<Move> = Row {
    after: &[Step::WarmCopied],
    does: "No writer is left.",
    proof: Proof::HeldUntil(Step::Serving),
    advice: "see why writers do not end",
    effects: |_| vec![Effect::Writers { count: 0, fence: "forward" }],
    on_start: |context, notes| notes.writers = notes.writers.or(Some(context.observed.writers.0)),
    ..Row::new(Side::Source, Step::WriterStopped, are_writers_gone)
};

const EXPORTED: Row<Move> = Row {
    after: &[Step::WriterStopped],
    does: "All writes are in the bucket.",
    advice: "see whether the bucket has room",
    effects: |_| vec![Effect::Export],
    on_done: |context, notes| notes.exported = context.observed.exported,
    ..Row::new(Side::Source, Step::Exported, is_exported)
};

const OWNER_MOVED: Row<Move> = Row {
    after: &[Step::Exported],
    does: "The owner record names the destination.",
    proof: Proof::HeldUntil(Step::Serving),
    advice: "see whether the record can be written",
    effects: |_| vec![Effect::Owner { side: Side::Destination, epoch: 2 }],
    on_start: |_, notes| notes.is_touched = true,
    ..Row::new(Side::Destination, Step::OwnerMoved, is_owner_moved)
};

const IMPORTED: Row<Move> = Row {
    after: &[Step::Exported, Step::WarmCopied],
    does: "The copy holds what was exported.",
    advice: "see whether the volume has room",
    effects: |_| vec![Effect::Copy],
    on_start: |_, notes| notes.is_touched = true,
    ..Row::new(Side::Destination, Step::Imported, is_imported)
};

const LEASE_EXPIRED: Row<Move> = Row {
    after: &[Step::OwnerMoved],
    does: "The source cannot serve any more, whatever has become of it.",
    timeout: Timeout::Computed {
        text: "TTL + interval + grace + 10 min",
        limit: |_| LEASE + Duration::from_secs(600),
    },
    advice: "wait",
    ..Row::new(Side::Destination, Step::LeaseExpired, has_lease_expired)
};

const SERVING: Row<Move> = Row {
    after: &[Step::Imported, Step::LeaseExpired],
    does: "The destination serves. No way back from here.",
    on_failure: OnFailure::Fail,
    advice: "see why the server does not start",
    condition: Some("DestinationServing"),
    effects: |_| vec![Effect::Server],
    ..Row::new(Side::Destination, Step::Serving, does_serve)
};

const RELEASED: Row<Move> = Row {
    after: &[Step::Serving],
    does: "The source's volume is deleted.",
    on_failure: OnFailure::Skip,
    advice: "delete it by hand",
    effects: |_| vec![Effect::Released],
    ..Row::new(Side::Source, Step::SourceReleased, is_released)
};

static ROLLBACK: &[Row<Move>] = &[
    Row {
        does: "The destination holds no copy.",
        on_failure: OnFailure::Fail,
        advice: "delete it by hand",
        effects: |_| vec![Effect::NoCopy],
        ..Row::new(Side::Destination, Step::DestinationStopped, |context| {
            not_yet(context.observed.copied.is_none() && !context.observed.serves, "CopyThere")
        })
    },
    Row {
        after: &[Step::DestinationStopped],
        does: "The owner record names the source, with a higher epoch.",
        proof: Proof::HeldUntil(Step::WriterStarted),
        on_failure: OnFailure::Fail,
        advice: "see whether the record can be written",
        effects: |_| vec![Effect::Owner { side: Side::Source, epoch: 3 }],
        ..Row::new(Side::Source, Step::OwnerRestored, |context| {
            not_yet(context.observed.owner == Some((Side::Source, 3)), "OwnerElsewhere")
        })
    },
    Row {
        after: &[Step::OwnerRestored],
        does: "As many writers as before are wanted.",
        on_failure: OnFailure::Fail,
        advice: "see why they do not start",
        effects: |context| {
            let count = context.notes.writers.unwrap_or_default();
            vec![Effect::Writers { count, fence: "back" }]
        },
        ..Row::new(Side::Source, Step::WriterStarted, |context| {
            let (wanted, _, fence) = &context.observed.writers;
            not_yet(
                context.notes.writers.is_none_or(|count| count == *wanted && fence == "back"),
                "WritersStopped",
            )
        })
    },
];

pub(super) fn not_yet(is_reached: bool, reason: &'static str) -> Check {
    if is_reached { Check::Met("it is observed".into()) } else { Check::waiting(reason, "it is requested") }
}

fn is_warm(context: &Context) -> Check {
    not_yet(context.observed.copied.is_some(), "Copying")
}

fn are_writers_gone(context: &Context) -> Check {
    not_yet(context.observed.writers.0 == 0 && context.observed.writers.1 == 0, "WritersEnding")
}

fn is_exported(context: &Context) -> Check {
    not_yet(context.observed.exported.is_some(), "Exporting")
}

fn is_owner_moved(context: &Context) -> Check {
    not_yet(context.observed.owner == Some((Side::Destination, 2)), "OwnerElsewhere")
}

/// What the source has recorded is evidence; without a source, it is what the bucket holds.
fn is_imported(context: &Context) -> Check {
    let expected = match context.observed.mode {
        Mode::Planned => context.side(Side::Source).and_then(|source| source.notes.exported),
        Mode::Forced => context.observed.exported,
    };
    not_yet(expected.is_some() && context.observed.copied == expected, "Importing")
}

fn has_lease_expired(context: &Context) -> Check {
    not_yet(context.since(Step::OwnerMoved).is_some_and(|since| since >= LEASE), "LeaseRuns")
}

fn does_serve(context: &Context) -> Check {
    not_yet(context.observed.serves, "Starting")
}

fn is_released(context: &Context) -> Check {
    not_yet(context.observed.is_released, "Deleting")
}
