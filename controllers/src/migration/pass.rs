//! What one pass of a side has observed, and what its effects are carried out with.

use repot_plan::migration::observed::Observed;

use super::{
    api::ControlPlaneMigration, context::Context, destination::objects::Objects as DestinationObjects,
    garden::objects::Objects as GardenObjects, source::objects::Objects as SourceObjects,
};

/// What was observed in a pass.
pub struct Observation {
    /// What rows decide on.
    pub facts: Observed,
    /// The objects that it was read from: effects are carried out under their versions.
    pub objects: Objects,
}

/// The objects of one side.
pub enum Objects {
    /// Of the garden.
    Garden(Box<GardenObjects>),
    /// Of the source.
    Source(Box<SourceObjects>),
    /// Of the destination.
    Destination(Box<DestinationObjects>),
}

/// What an effect is carried out with.
pub struct Pass<'a> {
    /// What all passes share.
    pub context: &'a Context,
    /// The migration as it is stored.
    pub migration: &'a ControlPlaneMigration,
    /// What was observed in the pass that decided on the effect.
    pub facts: &'a Observed,
}
