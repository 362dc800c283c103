//! A Shoot of which only the seeds are of interest: the rest is passed over while it is parsed, for there may be ten thousand.

use std::borrow::Cow;

use kube::{
    Resource,
    core::{ApiResource, DynamicResourceScope, ObjectMeta},
};
use serde::Deserialize;
use serde_json::Value;

/// Where a Shoot is to be and where it is.
pub(super) type OnSeeds = [Option<Box<str>>; 2];

/// The part of a Shoot that is read. Anything else, and anything odd, is nothing.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Brief {
    metadata: ObjectMeta,
    spec: Option<Part>,
    status: Option<Part>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part {
    seed_name: Option<Value>,
}

/// The seeds of a Shoot.
pub(super) fn on_seeds(shoot: Brief) -> Option<OnSeeds> {
    let name = |part: Option<Part>| match part?.seed_name? {
        Value::String(name) if !name.is_empty() => Some(name.into_boxed_str()),
        _ => None,
    };
    Some([name(shoot.spec), name(shoot.status)])
}

impl Resource for Brief {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn api_version(resource: &ApiResource) -> Cow<'_, str> {
        resource.api_version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_seeds_and_nothing_else() {
        let seeds = |spec: Value, status: Value| {
            let shoot = json!({"metadata": {"name": "n"}, "spec": spec, "status": status});
            on_seeds(serde_json::from_value(shoot).expect("a Shoot")).expect("seeds")
        };
        let both = seeds(json!({"seedName": "a", "x": [1]}), json!({"seedName": "b"}));
        assert_eq!(both, [Some("a".into()), Some("b".into())]);
        assert_eq!(seeds(json!({"seedName": 7}), json!(null)), [None, None]);
        assert_eq!(seeds(json!({"seedName": ""}), json!({})), [None, None]);
    }
}
