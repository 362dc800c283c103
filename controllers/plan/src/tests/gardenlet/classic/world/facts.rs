//! What each side observes.

use std::time::Duration;

use repot_api::conditions::Reason;
use repot_apimachinery::time::Time;

use super::{BEGIN, DESTINATION, SOURCE, World};
use crate::{
    flow::Abort,
    gardenlet::observed::{
        BindingAnswer, DestinationFacts, GardenFacts, LastOperation, MigrationRequest, ShootFacts,
        StateFacts, StoredState,
    },
    migration::observed::{MigrationMode, SourceSnapshot},
};

impl World {
    pub(super) fn request(&self) -> MigrationRequest {
        MigrationRequest {
            uid: "u".into(),
            mode: MigrationMode::Classic,
            confirmed: false,
            source_off: false,
            finalizer: self.finalizer,
            paused: (self.paused.0..self.paused.1).contains(&self.now),
            abort: match (self.now >= self.released_at, self.now >= self.abort_at) {
                (true, _) if self.bound => Abort::Force,
                (_, true) => Abort::Abort,
                (_, false) => Abort::None,
            },
            released: (self.bound && self.now >= self.released_at)
                .then(|| Reason::new("Released", "nobody watches it")),
            abandoned: None,
            retry: 0,
            step_timeout: Duration::from_secs(600),
            source_seed: SOURCE.into(),
            destination_seed: DESTINATION.into(),
            hibernated: self.hibernated,
        }
    }

    pub(super) fn garden_facts(&self) -> GardenFacts {
        let (kind, state) = self.operation;
        let last = LastOperation {
            kind: kind.into(),
            state: state.into(),
            progress: 50,
            description: "words".into(),
        };
        let binding = match (self.spec != SOURCE, self.asked, self.now < self.refused_until) {
            (true, ..) | (false, true, false) => BindingAnswer::Accepted,
            (false, true, true) => BindingAnswer::Refused("it is refused".to_owned()),
            (false, false, _) => BindingAnswer::Unknown,
        };
        GardenFacts {
            other_migration: None,
            followed_by: None,
            refusals: Vec::new(),
            binding,
            shoot: ShootFacts {
                spec_seed: Some(self.spec.to_owned()),
                status_seed: self.status.map(str::to_owned),
                last_operation: Some(last),
                last_errors: Vec::new(),
                fence: String::new(),
            },
            backup_entry: None,
        }
    }

    pub(super) fn destination_facts(&self) -> DestinationFacts {
        let state = StoredState { written: Some(Time(BEGIN)), bytes: self.state_bytes };
        DestinationFacts {
            missing_rights: Vec::new(),
            copy_namespace: self.copy,
            bucket_problem: (!self.copy).then(|| "there is no Secret yet".to_owned()),
            source_newest: self.copy.then(|| SourceSnapshot {
                name: format!("Full-{}", self.revision),
                revision: self.revision,
                created: Time(self.now),
            }),
            copied: self.copied.filter(|_| self.copy),
            states: Some(StateFacts { own: Some(state), gardener: None }),
            states_problem: None,
            copy_tasks: Vec::new(),
            api_ready: self.destination_api,
        }
    }
}
