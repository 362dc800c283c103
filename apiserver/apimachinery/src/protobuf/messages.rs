//! Messages that Kubernetes has in protobuf, by the JSON names of their fields.
//!
//! Sources: `generated.proto` of k8s.io/apimachinery `pkg/apis/meta/v1` and `pkg/runtime`, and of k8s.io/api
//! `apidiscovery/v2` (the same as `v2beta1`). Fields are in the order of their numbers, in which Go writes them.

/// The fields of a message, as `generated.proto` of apimachinery numbers them.
pub(super) struct Message(pub(super) &'static [Field]);

/// A field of a message.
pub(super) struct Field {
    pub(super) key: &'static str,
    pub(super) number: u32,
    pub(super) form: Form,
}

/// How a JSON value is written.
///
/// Go writes a field that is no pointer also where it is empty. A field behind a pointer (`Optional…`) is written where it
/// is set, also where it is set to zero. Lists and maps have as many entries as there are.
pub(super) enum Form {
    Text,
    OptionalText,
    Integer,
    OptionalInteger,
    Flag,
    OptionalFlag,
    Texts,
    /// A map of texts, sorted by key.
    TextMap,
    /// A time in RFC 3339, as a message of seconds since 1970.
    Time,
    OptionalTime,
    Message(&'static Message),
    OptionalMessage(&'static Message),
    Messages(&'static Message),
    /// Any JSON, as a message with one field of bytes.
    OptionalJson,
    /// A list of texts, as a message with one repeated field.
    OptionalTexts,
}

const fn field(key: &'static str, number: u32, form: Form) -> Field {
    Field { key, number, form }
}

pub(super) static LIST_META: Message = Message(&[
    field("selfLink", 1, Form::Text),
    field("resourceVersion", 2, Form::Text),
    field("continue", 3, Form::Text),
    field("remainingItemCount", 4, Form::OptionalInteger),
]);

static OWNER_REFERENCE: Message = Message(&[
    field("kind", 1, Form::Text),
    field("name", 3, Form::Text),
    field("uid", 4, Form::Text),
    field("apiVersion", 5, Form::Text),
    field("controller", 6, Form::OptionalFlag),
    field("blockOwnerDeletion", 7, Form::OptionalFlag),
]);

static MANAGED_FIELDS_ENTRY: Message = Message(&[
    field("manager", 1, Form::Text),
    field("operation", 2, Form::Text),
    field("apiVersion", 3, Form::Text),
    field("time", 4, Form::OptionalTime),
    field("fieldsType", 6, Form::Text),
    field("fieldsV1", 7, Form::OptionalJson),
    field("subresource", 8, Form::Text),
]);

static OBJECT_META: Message = Message(&[
    field("name", 1, Form::Text),
    field("generateName", 2, Form::Text),
    field("namespace", 3, Form::Text),
    field("selfLink", 4, Form::Text),
    field("uid", 5, Form::Text),
    field("resourceVersion", 6, Form::Text),
    field("generation", 7, Form::Integer),
    field("creationTimestamp", 8, Form::Time),
    field("deletionTimestamp", 9, Form::OptionalTime),
    field("deletionGracePeriodSeconds", 10, Form::OptionalInteger),
    field("labels", 11, Form::TextMap),
    field("annotations", 12, Form::TextMap),
    field("ownerReferences", 13, Form::Messages(&OWNER_REFERENCE)),
    field("finalizers", 14, Form::Texts),
    field("managedFields", 17, Form::Messages(&MANAGED_FIELDS_ENTRY)),
]);

static PARTIAL_OBJECT_METADATA: Message = Message(&[field("metadata", 1, Form::Message(&OBJECT_META))]);

static PARTIAL_OBJECT_METADATA_LIST: Message = Message(&[
    field("metadata", 1, Form::Message(&LIST_META)),
    field("items", 2, Form::Messages(&PARTIAL_OBJECT_METADATA)),
]);

/// Its fields changed places between versions.
static PARTIAL_OBJECT_METADATA_LIST_V1BETA1: Message = Message(&[
    field("items", 1, Form::Messages(&PARTIAL_OBJECT_METADATA)),
    field("metadata", 2, Form::Message(&LIST_META)),
]);

static STATUS_CAUSE: Message = Message(&[
    field("reason", 1, Form::Text),
    field("message", 2, Form::Text),
    field("field", 3, Form::Text),
]);

static STATUS_DETAILS: Message = Message(&[
    field("name", 1, Form::Text),
    field("group", 2, Form::Text),
    field("kind", 3, Form::Text),
    field("causes", 4, Form::Messages(&STATUS_CAUSE)),
    field("retryAfterSeconds", 5, Form::Integer),
    field("uid", 6, Form::Text),
]);

static STATUS: Message = Message(&[
    field("metadata", 1, Form::Message(&LIST_META)),
    field("status", 2, Form::Text),
    field("message", 3, Form::Text),
    field("reason", 4, Form::Text),
    field("details", 5, Form::OptionalMessage(&STATUS_DETAILS)),
    field("code", 6, Form::Integer),
]);

static GROUP_VERSION: Message =
    Message(&[field("groupVersion", 1, Form::Text), field("version", 2, Form::Text)]);

static SERVER_ADDRESS: Message =
    Message(&[field("clientCIDR", 1, Form::Text), field("serverAddress", 2, Form::Text)]);

static API_VERSIONS: Message = Message(&[
    field("versions", 1, Form::Texts),
    field("serverAddressByClientCIDRs", 2, Form::Messages(&SERVER_ADDRESS)),
]);

static API_GROUP: Message = Message(&[
    field("name", 1, Form::Text),
    field("versions", 2, Form::Messages(&GROUP_VERSION)),
    field("preferredVersion", 3, Form::Message(&GROUP_VERSION)),
    field("serverAddressByClientCIDRs", 4, Form::Messages(&SERVER_ADDRESS)),
]);

static API_GROUP_LIST: Message = Message(&[field("groups", 1, Form::Messages(&API_GROUP))]);

static API_RESOURCE: Message = Message(&[
    field("name", 1, Form::Text),
    field("namespaced", 2, Form::Flag),
    field("kind", 3, Form::Text),
    field("verbs", 4, Form::OptionalTexts),
    field("shortNames", 5, Form::Texts),
    field("singularName", 6, Form::Text),
    field("categories", 7, Form::Texts),
    field("group", 8, Form::Text),
    field("version", 9, Form::Text),
    field("storageVersionHash", 10, Form::Text),
]);

static API_RESOURCE_LIST: Message =
    Message(&[field("groupVersion", 1, Form::Text), field("resources", 2, Form::Messages(&API_RESOURCE))]);

static GROUP_VERSION_KIND: Message =
    Message(&[field("group", 1, Form::Text), field("version", 2, Form::Text), field("kind", 3, Form::Text)]);

static API_SUBRESOURCE_DISCOVERY: Message = Message(&[
    field("subresource", 1, Form::Text),
    field("responseKind", 2, Form::OptionalMessage(&GROUP_VERSION_KIND)),
    field("acceptedTypes", 3, Form::Messages(&GROUP_VERSION_KIND)),
    field("verbs", 4, Form::Texts),
]);

static API_RESOURCE_DISCOVERY: Message = Message(&[
    field("resource", 1, Form::Text),
    field("responseKind", 2, Form::OptionalMessage(&GROUP_VERSION_KIND)),
    field("scope", 3, Form::Text),
    field("singularResource", 4, Form::Text),
    field("verbs", 5, Form::Texts),
    field("shortNames", 6, Form::Texts),
    field("categories", 7, Form::Texts),
    field("subresources", 8, Form::Messages(&API_SUBRESOURCE_DISCOVERY)),
]);

static API_VERSION_DISCOVERY: Message = Message(&[
    field("version", 1, Form::Text),
    field("resources", 2, Form::Messages(&API_RESOURCE_DISCOVERY)),
    field("freshness", 3, Form::Text),
]);

static API_GROUP_DISCOVERY: Message = Message(&[
    field("metadata", 1, Form::Message(&OBJECT_META)),
    field("versions", 2, Form::Messages(&API_VERSION_DISCOVERY)),
]);

static API_GROUP_DISCOVERY_LIST: Message = Message(&[
    field("metadata", 1, Form::Message(&LIST_META)),
    field("items", 2, Form::Messages(&API_GROUP_DISCOVERY)),
]);

static PRECONDITIONS: Message =
    Message(&[field("uid", 1, Form::OptionalText), field("resourceVersion", 2, Form::OptionalText)]);

/// The body of a DELETE request.
pub(super) static DELETE_OPTIONS: Message = Message(&[
    field("gracePeriodSeconds", 1, Form::OptionalInteger),
    field("preconditions", 2, Form::OptionalMessage(&PRECONDITIONS)),
    field("orphanDependents", 3, Form::OptionalFlag),
    field("propagationPolicy", 4, Form::OptionalText),
    field("dryRun", 5, Form::Texts),
    field("ignoreStoreReadErrorWithClusterBreakingPotential", 6, Form::OptionalFlag),
]);

/// The kinds that are written, by `apiVersion` and `kind`. One without `apiVersion` is the same in all versions.
static KINDS: &[(&str, &str, &Message)] = &[
    ("meta.k8s.io/v1beta1", "PartialObjectMetadataList", &PARTIAL_OBJECT_METADATA_LIST_V1BETA1),
    ("meta.k8s.io/v1", "PartialObjectMetadataList", &PARTIAL_OBJECT_METADATA_LIST),
    ("", "PartialObjectMetadata", &PARTIAL_OBJECT_METADATA),
    ("", "Status", &STATUS),
    ("", "APIVersions", &API_VERSIONS),
    ("", "APIGroup", &API_GROUP),
    ("", "APIGroupList", &API_GROUP_LIST),
    ("", "APIResourceList", &API_RESOURCE_LIST),
    ("", "APIGroupDiscoveryList", &API_GROUP_DISCOVERY_LIST),
];

/// The message of a kind.
pub(super) fn of(api_version: &str, kind: &str) -> Option<&'static Message> {
    let same = |(version, name, _): &&(&str, &str, _)| *name == kind && ["", api_version].contains(version);
    KINDS.iter().find(same).map(|(_, _, message)| *message)
}

#[cfg(test)]
pub(super) fn kinds() -> impl Iterator<Item = (&'static str, &'static str)> {
    KINDS.iter().map(|(version, kind, _)| (*version, *kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(message: &Message) {
        let numbers: Vec<u32> = message.0.iter().map(|field| field.number).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
        for field in message.0 {
            match field.form {
                Form::Message(inner) | Form::OptionalMessage(inner) | Form::Messages(inner) => check(inner),
                _ => {}
            }
        }
    }

    #[test]
    fn fields_are_in_the_order_of_their_numbers() {
        KINDS.iter().for_each(|(_, _, message)| check(message));
        check(&DELETE_OPTIONS);
    }
}
