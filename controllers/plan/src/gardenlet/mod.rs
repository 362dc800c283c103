//! The migration of a control plane by today's gardenlet (executor Gardenlet), in two modes.
//!
//! **Classic**: both gardenlets answer, and do everything. Repot asks beforehand what would stop them half-way, copies the snapshots
//! ahead, binds the Shoot, watches, and measures the outage. Until [`Step::SeedBound`] is started, the migration rolls back, and nothing
//! of the Shoot was written. From then on gardenlet migrates, and nothing rolls back.
//!
//! **Forced**: the source seed is dead, and the gardenlet of the destination restores the Shoot, without a migrate phase at the source.
//! Repot makes what it needs, writes what makes it restore, and watches. The facts about gardenlet that these tables rely on are
//! functions of [`repot_api::gardener::gardenlet`].
//!
//! **Who fences a dead source.** Nobody but a person. Today's gardenlet knows no owner record: it renders `spec.backup` of each Etcd anew,
//! without an owner check, so a record would stop no member of the source. [`Step::SourceOff`] waits for a confirmation, and
//! [`Step::SnapshotsCopied`] refuses to go on where the bucket of the source shows that somebody still writes to it. That finds a source
//! that runs; it does not prove that none does.
//!
//! **What a forced migration promises.** Until [`Step::RestoreRequested`] is started, it rolls back, and the Shoot and its BackupEntry name
//! the seeds that they named before. From then on nothing rolls back: gardenlet restores, and a person repairs what it waits for.
//!
//! **Why the BackupEntry moves before the Shoot.** gardenlet's restore writes the bucket of its seed into the BackupEntry, which wakes the
//! gardenlet of the responsible seed once. If that were still the dead source, nobody would be woken again.
//!
//! | file | has |
//! |---|---|
//! | `step.rs` | steps; sides are those of a [classic](crate::classic) migration by Repot |
//! | `observed.rs`, `notes.rs`, `effect.rs` | what each side observes, remembers and can request |
//! | `classic.rs` | the tables of a classic migration |
//! | `forward.rs`, `rollback.rs` | the tables of a forced migration |
//! | `garden.rs`, `steer.rs`, `destination.rs` | checks and effects of the rows, by side |
//! | `flow.rs`, `plan.rs` | the flow of the engine, and the versions of the tables |

mod classic;
mod destination;
pub mod effect;
mod flow;
mod forward;
mod garden;
mod notes;
pub mod observed;
mod plan;
mod rollback;
mod steer;
mod step;

pub use flow::GardenletMigration;
pub use notes::{FormerSeeds, Notes};
pub use plan::{CLASSIC_PLAN, CLASSIC_PLANS, PLAN, PLAN_VERSION, PLANS};
pub use steer::is_binding_asked;
pub use step::Step;
