//! What is served: the install table. A new kind is a line here and a file beside `shoot_state` in the `api` crate.

use repot_api::{kind::Kind, names, shoot_state};

use crate::resource::{GroupResource, Resource};

/// Kinds of the garden, with the group each is served in.
const GARDEN: &[(&str, &Kind)] = &[(names::CORE_GROUP, &shoot_state::KIND_INFO)];

/// The resources of a garden. `shootstate_group`: where ShootStates are served when not in the paper's group, because
/// somebody else serves that resource name there.
#[must_use]
pub fn garden(shootstate_group: &str) -> Vec<Resource> {
    let group_of = |group: &str, kind: &Kind| {
        let own = kind.kind == shoot_state::KIND_INFO.kind;
        if own { shootstate_group.to_owned() } else { group.to_owned() }
    };
    GARDEN
        .iter()
        .map(|(group, kind)| Resource {
            name: GroupResource { group: group_of(group, kind), resource: kind.plural.to_owned() },
            version: names::V1ALPHA1.to_owned(),
            kind,
        })
        .collect()
}
