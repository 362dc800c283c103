//! What moves with a control plane: objects that declare it by a label, with annotations that tell what differs from seed to seed.

use serde_json::{Map, Value};

/// Label of objects that have to exist at the destination, too.
pub const CARRY: &str = "migration.gardener.cloud/carry";
/// Annotation of objects with facts of their seed: a JSON object from JSON pointers to templates such as `--by=${seed.name}`.
pub const BINDINGS: &str = "migration.gardener.cloud/bindings";

/// The object with the label.
pub(super) fn carried(mut object: Value) -> Value {
    object["metadata"]["labels"][CARRY] = "true".into();
    object
}

/// Annotation of Secrets with certificates that are issued anew at the destination.
const CERTIFICATES: &str = "migration.gardener.cloud/certificates";

/// The Secret with certificates that are not carried: a list of what each of them is for.
pub(super) fn issued_anew(mut secret: Value, certificates: &Value) -> Value {
    secret["metadata"]["annotations"][CERTIFICATES] = certificates.to_string().into();
    secret
}

/// Annotates an object with its bindings; without bindings it stays as it is.
pub(super) fn bind(object: &mut Value, bindings: &[(String, &str)]) {
    let bindings: Map<_, _> =
        bindings.iter().map(|(pointer, template)| (pointer.clone(), (*template).into())).collect();
    if !bindings.is_empty() {
        object["metadata"]["annotations"][BINDINGS] = Value::Object(bindings).to_string().into();
    }
}
