//! What all passes of one controller share.

use std::{num::NonZeroUsize, sync::atomic::AtomicBool, time::Duration};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Api, Client, Resource, ResourceExt};
use repot_api::names::CORE_GROUP;
use repot_plan::migration::{Side, observed::MigrationMode};

use super::{
    api::{ControlPlaneMigration, Shoot},
    error::{Error, Result},
    names::MANAGER,
    quarantine::QuarantineCommand,
    seed::exposure::Exposer,
    source::last_answer::LastAnswers,
    turns::Turns,
};
use crate::{
    events::{EventContent, EventPublisher},
    flow::Clients,
    local_stores::LocalStores,
    metrics::Metrics,
    reconciler::Settings,
};

/// After a pass that did not come to its end.
const AFTER_ERROR: Duration = Duration::from_secs(5);
/// After somebody else was faster.
const AFTER_CONFLICT: Duration = Duration::from_millis(200);

/// The seed that a controller acts on.
pub struct Seed {
    /// Client of its API server.
    pub client: Client,
    /// Name of the Seed in the garden.
    pub name: String,
    /// Image of Jobs, with `repot`.
    pub image: String,
    /// How other seeds reach the members of an etcd.
    pub exposer: Exposer,
}

/// What the operator of a garden has configured.
#[derive(Clone, Debug)]
pub struct GardenOptions {
    /// The command that takes away the credentials of dead seeds, where there is one.
    pub quarantine: Option<QuarantineCommand>,
    /// How many classic and live migrations may be under way at once from and to one seed.
    pub max_per_seed: NonZeroUsize,
}

/// What all passes of one controller share.
pub struct Context {
    /// The garden, and the seed where the controller runs on one.
    pub clients: Clients,
    /// Name of the seed that the controller acts on; `None` in the garden.
    pub seed: Option<String>,
    /// Image of Jobs, with `repot`; empty in the garden, which makes none.
    pub image: String,
    /// Publishes Events of migrations, in the garden.
    pub events: EventPublisher,
    /// Which directories stores with the provider `Local` may use.
    pub local_stores: LocalStores,
    /// Where reconciles and steps are counted.
    pub metrics: Metrics,
    /// In the garden: the command that takes away the credentials of dead seeds, where there is one.
    pub quarantine: Option<QuarantineCommand>,
    /// In the garden: how many migrations a seed has at once.
    pub turns: Turns,
    /// On a seed: how other seeds reach the members of an etcd.
    pub exposer: Exposer,
    /// On a seed: when API servers that are being stopped have answered last.
    pub last_answers: LastAnswers,
    /// In the garden: whether Shoots were found to have no `status.zoneIsolation`.
    pub shows_no_isolation: AtomicBool,
}

impl Context {
    /// For the controller of the garden; `instance` is the name of this process in events.
    #[must_use]
    pub fn garden(garden: Client, instance: String, metrics: Metrics, options: GardenOptions) -> Self {
        let events = EventPublisher::new(garden.clone(), MANAGER, Some(instance));
        let local_stores = LocalStores::default();
        Self {
            clients: Clients::Garden(garden),
            seed: None,
            image: String::new(),
            events,
            local_stores,
            metrics,
            quarantine: options.quarantine,
            turns: Turns::new(options.max_per_seed),
            exposer: Exposer::default(),
            last_answers: LastAnswers::default(),
            shows_no_isolation: AtomicBool::default(),
        }
    }

    /// For the controller of a seed; `instance` is the name of this process in events.
    #[must_use]
    pub fn seed(
        seed: Seed,
        garden: Client,
        instance: String,
        local_stores: LocalStores,
        metrics: Metrics,
    ) -> Self {
        let events = EventPublisher::new(garden.clone(), MANAGER, Some(instance));
        let clients = Clients::Seed { seed: seed.client, garden: Some(garden) };
        Self {
            clients,
            seed: Some(seed.name),
            image: seed.image,
            events,
            local_stores,
            metrics,
            quarantine: None,
            turns: Turns::default(),
            exposer: seed.exposer,
            last_answers: LastAnswers::default(),
            shows_no_isolation: AtomicBool::default(),
        }
    }

    /// The Shoot of a migration; `None` where there is none of its name.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub(super) async fn shoot(&self, migration: &ControlPlaneMigration) -> Result<Option<Shoot>> {
        let (namespace, name) = (migration.namespace().unwrap_or_default(), &migration.spec.shoot_ref.name);
        let found = Api::<Shoot>::namespaced(self.garden_client().clone(), &namespace).get_opt(name).await;
        found.map_err(Error::read(format!("Shoot {namespace}/{name}")))
    }

    /// Publishes an Event about a migration, and the same about its Shoot, where people look first.
    pub(super) async fn publish(&self, migration: &ControlPlaneMigration, event: EventContent) {
        let shoot = &migration.spec.shoot_ref;
        let about = ObjectReference {
            api_version: Some(format!("{CORE_GROUP}/v1beta1")),
            kind: Some("Shoot".to_owned()),
            namespace: migration.namespace(),
            name: Some(shoot.name.clone()),
            uid: Some(shoot.uid.clone()).filter(|uid| !uid.is_empty()),
            ..ObjectReference::default()
        };
        let message = format!("ControlPlaneMigration {}: {}", migration.name_any(), event.message);
        let same = EventContent { message, ..event.clone() };
        self.events.publish(&Resource::object_ref(migration, &()), event).await;
        self.events.publish(&about, same).await;
    }

    /// The client of the garden.
    pub(crate) fn garden_client(&self) -> &Client {
        self.clients.garden().unwrap_or(self.clients.own())
    }

    /// The client of the cluster that this controller acts on.
    pub(crate) fn own_client(&self) -> &Client {
        self.clients.own()
    }

    /// The sides of a migration that this controller works on.
    pub(super) fn sides(&self, migration: &ControlPlaneMigration) -> Vec<Side> {
        let spec = &migration.spec;
        match &self.seed {
            None => vec![Side::Garden],
            // A dead source has no rows where gardenlet restores.
            Some(seed) if *seed == spec.source_seed => match migration.gardenlet_mode() {
                Some(MigrationMode::Forced) => Vec::new(),
                Some(MigrationMode::Classic | MigrationMode::Live) | None => vec![Side::Source],
            },
            Some(seed) if *seed == spec.destination_seed => vec![Side::Destination],
            Some(_) => Vec::new(),
        }
    }

    /// How the controller runs.
    pub(crate) fn controller(&self, name: &'static str) -> Settings {
        let metrics = self.metrics.clone();
        Settings { name, after_conflict: AFTER_CONFLICT, after_error: AFTER_ERROR, metrics }
    }
}
