//! The operations of a group: which verb stands at which path, with which parameters and bodies.

use serde_json::{Map, Value, json};

use super::{Dress, GroupVersion, definitions::Definitions, meta_types};
use crate::kind::Kind;

/// Content types of PATCH requests, in the order of preference.
pub const PATCH_TYPES: &[&str] =
    &["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];

const JSON: &[&str] = &["application/json"];

/// Where a verb stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum VerbPosition {
    Collection,
    Item,
    Status,
}

/// One verb: method, `x-kubernetes-action`, word of the operation id, query parameters, body.
struct Verb {
    method: &'static str,
    action: &'static str,
    place: VerbPosition,
    parameters: &'static [Parameter],
    body: Body,
    answer: Answer,
}

impl Verb {
    /// The status is read and written as the object is.
    fn stands_at(&self, place: VerbPosition) -> bool {
        match place {
            VerbPosition::Status => self.place == VerbPosition::Item && self.method != "delete",
            place => self.place == place,
        }
    }
}

enum Body {
    None,
    Kind,
    Patch,
    DeleteOptions,
}

enum Answer {
    Kind,
    List,
    Status,
}

/// Name, type and description of a query parameter.
type Parameter = (&'static str, &'static str, &'static str);

const DRY_RUN: Parameter = ("dryRun", "string", "All: go through every stage, but change nothing.");
const FIELD_MANAGER: Parameter = ("fieldManager", "string", "Name of the actor that makes the change.");
const FIELD_VALIDATION: Parameter =
    ("fieldValidation", "string", "Ignore, Warn or Strict: what to do about unknown and duplicate fields.");
const FORCE: Parameter = ("force", "boolean", "Take over fields that others manage; for apply patches.");
const GRACE: Parameter = ("gracePeriodSeconds", "integer", "Seconds before the object is to be deleted.");
const ORPHAN: Parameter = ("orphanDependents", "boolean", "Deprecated: use propagationPolicy.");
const PROPAGATION: Parameter =
    ("propagationPolicy", "string", "Orphan, Background or Foreground: what becomes of dependents.");
const LIST_PARAMETERS: &[Parameter] = &[
    ("allowWatchBookmarks", "boolean", "Ask for BOOKMARK events in a watch."),
    ("continue", "string", "Where the page before this one ended."),
    ("fieldSelector", "string", "Restrict to objects with these fields."),
    ("labelSelector", "string", "Restrict to objects with these labels."),
    ("limit", "integer", "Most items of one page."),
    ("resourceVersion", "string", "From which version on, or at which, to read."),
    ("resourceVersionMatch", "string", "How resourceVersion is meant: Exact or NotOlderThan."),
    ("sendInitialEvents", "boolean", "Begin a watch with the present state."),
    ("timeoutSeconds", "integer", "End the call after this time."),
    ("watch", "boolean", "Stream changes instead of listing."),
];

const VERBS: &[Verb] = &[
    Verb {
        method: "get",
        action: "list",
        place: VerbPosition::Collection,
        parameters: LIST_PARAMETERS,
        body: Body::None,
        answer: Answer::List,
    },
    Verb {
        method: "post",
        action: "post",
        place: VerbPosition::Collection,
        parameters: &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION],
        body: Body::Kind,
        answer: Answer::Kind,
    },
    Verb {
        method: "delete",
        action: "deletecollection",
        place: VerbPosition::Collection,
        parameters: &[
            ("continue", "string", "Where the page before this one ended."),
            DRY_RUN,
            ("fieldSelector", "string", "Restrict to objects with these fields."),
            GRACE,
            ("labelSelector", "string", "Restrict to objects with these labels."),
            ("limit", "integer", "Most items of one page."),
            ORPHAN,
            PROPAGATION,
            ("resourceVersion", "string", "From which version on, or at which, to read."),
        ],
        body: Body::DeleteOptions,
        answer: Answer::Status,
    },
    Verb {
        method: "get",
        action: "get",
        place: VerbPosition::Item,
        parameters: &[],
        body: Body::None,
        answer: Answer::Kind,
    },
    Verb {
        method: "put",
        action: "put",
        place: VerbPosition::Item,
        parameters: &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION],
        body: Body::Kind,
        answer: Answer::Kind,
    },
    Verb {
        method: "patch",
        action: "patch",
        place: VerbPosition::Item,
        parameters: &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION, FORCE],
        body: Body::Patch,
        answer: Answer::Kind,
    },
    Verb {
        method: "delete",
        action: "delete",
        place: VerbPosition::Item,
        parameters: &[DRY_RUN, GRACE, ORPHAN, PROPAGATION],
        body: Body::DeleteOptions,
        answer: Answer::Status,
    },
];

/// Adds the paths of a group.
pub(super) fn paths(
    group: &GroupVersion,
    dress: Dress,
    definitions: &mut Definitions,
    paths: &mut Map<String, Value>,
) {
    let base = format!("/apis/{}/{}", group.group, group.version);
    paths.insert(format!("{base}/"), resources(dress, definitions));
    definitions.shared(&meta_types::WATCH_EVENT);
    for kind in &group.kinds {
        let scope = if kind.namespaced { format!("{base}/namespaces/{{namespace}}") } else { base.clone() };
        let collection = format!("{scope}/{}", kind.plural);
        if kind.namespaced {
            let everywhere = VERBS.iter().filter(|verb| verb.action == "list");
            let item = path_item(everywhere, group, kind, dress, definitions, "ForAllNamespaces", false);
            paths.insert(format!("{base}/{}", kind.plural), item);
        }
        let places = [
            (VerbPosition::Collection, collection.clone(), ""),
            (VerbPosition::Item, format!("{collection}/{{name}}"), ""),
            (VerbPosition::Status, format!("{collection}/{{name}}/status"), "Status"),
        ];
        for (place, path, suffix) in places {
            if place != VerbPosition::Status || kind.has_status() {
                let verbs = VERBS.iter().filter(|verb| verb.stands_at(place));
                paths
                    .insert(path, path_item(verbs, group, kind, dress, definitions, suffix, kind.namespaced));
            }
        }
    }
}

fn resources(dress: Dress, definitions: &mut Definitions) -> Value {
    let schema = definitions.shared(&meta_types::API_RESOURCE_LIST);
    let responses = responses(&[("200", schema)], dress);
    json!({"get": {"description": "get available resources", "operationId": "getAPIResources", "responses": responses}})
}

fn path_item<'a>(
    verbs: impl Iterator<Item = &'a Verb>,
    group: &GroupVersion,
    kind: &'static Kind,
    dress: Dress,
    definitions: &mut Definitions,
    suffix: &str,
    namespaced: bool,
) -> Value {
    let mut item = Map::new();
    let mut parameters = vec![query(&("pretty", "string", "Indent the output."), dress)];
    if namespaced {
        parameters.push(in_path("namespace", "Name of the namespace.", dress));
    }
    for verb in verbs {
        if verb.place == VerbPosition::Item && !parameters.iter().any(|p| p["name"] == "name") {
            parameters.push(in_path("name", &format!("Name of the {}.", kind.kind), dress));
        }
        item.insert(verb.method.to_owned(), operation(verb, group, kind, dress, definitions, suffix));
    }
    item.insert("parameters".to_owned(), parameters.into());
    item.into()
}

fn operation(
    verb: &Verb,
    group: &GroupVersion,
    kind: &'static Kind,
    dress: Dress,
    definitions: &mut Definitions,
    suffix: &str,
) -> Value {
    let answer = match verb.answer {
        Answer::Kind => definitions.kind(group, kind),
        Answer::List => definitions.list(group, kind),
        Answer::Status => definitions.shared(&meta_types::STATUS),
    };
    let mut parameters: Vec<_> = verb.parameters.iter().map(|p| query(p, dress)).collect();
    let codes: &[&str] = match verb.method {
        "post" => &["200", "201", "202"],
        "put" | "patch" => &["200", "201"],
        "delete" if verb.place == VerbPosition::Item => &["200", "202"],
        _ => &["200"],
    };
    let answers: Vec<_> = codes.iter().map(|code| (*code, answer.clone())).collect();
    let mut operation = json!({
        "description": format!("{} {}", verb.action, kind.kind),
        "operationId": format!("{}{}{}{}{}", verb.action, camel(&group.group), camel(&group.version), kind.kind, suffix),
        "responses": responses(&answers, dress),
        "x-kubernetes-action": verb.action,
        "x-kubernetes-group-version-kind": {"group": group.group, "version": group.version, "kind": kind.kind},
    });
    let (schema, types) = match verb.body {
        Body::None => (None, JSON),
        Body::Kind => (Some(definitions.kind(group, kind)), JSON),
        Body::Patch => (Some(definitions.shared(&meta_types::PATCH)), PATCH_TYPES),
        Body::DeleteOptions => (Some(definitions.shared(&meta_types::DELETE_OPTIONS)), JSON),
    };
    if let Some(schema) = schema {
        let required = !matches!(verb.body, Body::DeleteOptions);
        match dress {
            Dress::V2 => {
                let mut body = json!({"name": "body", "in": "body", "schema": schema});
                if required {
                    body["required"] = true.into();
                }
                parameters.push(body);
                operation["consumes"] = types.into();
            }
            Dress::V3 => {
                operation["requestBody"] = json!({"content": content(&schema, types), "required": required})
            }
        }
    }
    if dress == Dress::V2 {
        operation["produces"] = JSON.into();
    }
    operation["parameters"] = parameters.into();
    operation
}

fn responses(answers: &[(&str, Value)], dress: Dress) -> Value {
    let mut responses = Map::new();
    for (code, schema) in answers {
        let response = match dress {
            Dress::V2 => json!({"description": "OK", "schema": schema}),
            Dress::V3 => json!({"description": "OK", "content": content(schema, JSON)}),
        };
        responses.insert((*code).to_owned(), response);
    }
    responses.insert("401".to_owned(), json!({"description": "Unauthorized"}));
    responses.into()
}

fn content(schema: &Value, types: &[&str]) -> Value {
    types.iter().map(|t| ((*t).to_owned(), json!({"schema": schema}))).collect::<Map<_, _>>().into()
}

fn query((name, kind, description): &Parameter, dress: Dress) -> Value {
    let mut parameter = json!({"name": name, "in": "query", "description": description});
    place_type(&mut parameter, kind, dress);
    parameter
}

fn in_path(name: &str, description: &str, dress: Dress) -> Value {
    let mut parameter = json!({"name": name, "in": "path", "required": true, "description": description});
    place_type(&mut parameter, "string", dress);
    parameter
}

fn place_type(parameter: &mut Value, kind: &str, dress: Dress) {
    match dress {
        Dress::V2 => {
            parameter["type"] = kind.into();
            parameter["uniqueItems"] = true.into();
        }
        Dress::V3 => parameter["schema"] = json!({"type": kind, "uniqueItems": true}),
    }
}

/// `core.gardener.cloud` becomes `CoreGardenerCloud`.
fn camel(text: &str) -> String {
    text.split('.')
        .map(|part| {
            part.chars().take(1).flat_map(char::to_uppercase).chain(part.chars().skip(1)).collect::<String>()
        })
        .collect()
}
