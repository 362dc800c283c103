//! POST to a collection.

use http::StatusCode;
use repot_apimachinery::{document::Document, json::Node};
use uuid::Uuid;

use super::{
    Answer, Request, admit, decode,
    encode::{EncodedObject, Origin},
    namespace_quota,
    options::WriteOptions,
    read::{self, Source},
    status_part, tracking, validate,
};
use crate::{memory::MemoryEstimate, needs, status::Status, wire};

/// Letters and digits that make no words, as Kubernetes uses them in generated names.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const MAX_GENERATE_NAME: usize = 58;
const GENERATE_TRIES: usize = 8;

/// Creates an object.
pub(super) async fn create(mut request: Request<'_>) -> Answer {
    let write = WriteOptions::parse(&request, "CreateOptions")?;
    let mut warnings = Vec::new();
    let yaml = read::is_yaml(&request)?;
    let sent = request.server.receive(request.call).await?;
    let source = Source::open(&mut request, sent, yaml, MemoryEstimate::create, needs::written).await?;
    let mut document = source.object(&request, &write, &mut warnings).await?;
    decode::default_name_and_namespace(&request, &mut document.meta)?;
    if !document.meta.resource_version.is_empty() {
        return Err(Status::bad_request("resourceVersion should not be set on objects to be created"));
    }
    let mut response = persist_new(&request, &write, document, Origin::Written(None)).await?;
    wire::warn(&mut response, &warnings);
    Ok(response)
}

/// Brings a new object to rest, which a create or an apply asks for.
pub(super) async fn persist_new(
    request: &Request<'_>,
    write: &WriteOptions,
    mut document: Document,
    origin: Origin,
) -> Answer {
    validate::need_namespace(request, &document.meta.name).await?;
    status_part::drop(request, &mut document);
    if matches!(origin, Origin::Written(_)) {
        tracking::created(request, &mut document).await?;
    }
    let owners = document.meta.managed_fields.clone();
    admit::mutate(request, write, &mut document, None).await?;
    tracking::keep_readable(request, &mut document.meta, owners);
    decode::default_name_and_namespace(request, &mut document.meta)?;
    status_part::drop(request, &mut document);
    let uid = Uuid::new_v4();
    prepare(&mut document, uid);
    let generated = document.meta.name.is_empty() && !document.meta.generate_name.is_empty();
    let tries = if generated { GENERATE_TRIES } else { 1 };
    for left in (0..tries).rev() {
        if generated {
            document.meta.name = generate_name(&document.meta.generate_name);
        }
        validate::validate(request, &document, Vec::new())?;
        admit::judge(request, write, &document, None).await?;
        let ready = EncodedObject::fitting(request, &mut document, &origin).await?;
        if !generated {
            // It is printed, and there is no other try: what it was decoded from is not needed any more.
            (document.body, document.source) = (Node::object(), None);
        }
        match rest(request, write, &document, uid, ready).await {
            Err(status) if status.reason() == "AlreadyExists" && left > 0 => {}
            Err(status) if status.reason() == "AlreadyExists" && generated => {
                return Err(Status::no_name_left(&request.resource.name, &document.meta.name));
            }
            done => {
                request.call.notes.lock().created = Some(document.meta.name.clone());
                return done;
            }
        }
    }
    Err(Status::internal("no name could be generated"))
}

/// What only the server may say about a new object.
fn prepare(document: &mut Document, uid: Uuid) {
    let meta = &mut document.meta;
    meta.uid = uid.to_string();
    meta.creation_timestamp = Some(wire::now());
    meta.deletion_timestamp = None;
    meta.deletion_grace_period_seconds = None;
    meta.generation = 1;
}

async fn rest(
    request: &Request<'_>,
    write: &WriteOptions,
    document: &Document,
    uid: Uuid,
    ready: EncodedObject,
) -> Answer {
    let key = request.key_of(&document.meta.name);
    let name = &document.meta.name;
    let store = &request.server.store;
    if write.dry_run {
        let found = store.get(&key).await.map_err(|error| request.failed(&error))?;
        return match found {
            Some(object) => Err(exists(request, name, &object)),
            None => Ok(ready.answer(request, StatusCode::CREATED, None, write.form)),
        };
    }
    namespace_quota::check(request, name, ready.length(), None).await?;
    match store.create(&key, ready.draft(uid)).await {
        Ok(object) => Ok(ready.answer(request, StatusCode::CREATED, Some(&object), write.form)),
        Err(repot_storage::Error::Exists) => match store.get(&key).await {
            Ok(Some(object)) => Err(exists(request, name, &object)),
            _ => Err(Status::already_exists(&request.resource.name, name, false)),
        },
        Err(error) => Err(crate::status::from_storage(&error, &request.resource.name, name)),
    }
}

fn exists(request: &Request<'_>, name: &str, object: &repot_storage::Object) -> Status {
    Status::already_exists(&request.resource.name, name, wire::parse_meta(object).deleting())
}

/// Base and five random characters.
fn generate_name(base: &str) -> String {
    let mut name: String = base.chars().take(MAX_GENERATE_NAME).collect();
    let random = Uuid::new_v4();
    let letter = |byte: &u8| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]);
    name.extend(random.as_bytes()[..5].iter().map(letter));
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_could_not_be_made_is_worth_a_retry() {
        let resource = crate::resource::GroupResource { group: "g".into(), resource: "rs".into() };
        let response = Status::no_name_left(&resource, "base-xyz").into_response();
        assert_eq!(response.status(), StatusCode::CONFLICT);
        assert_eq!(response.headers()[http::header::RETRY_AFTER], "1");
        assert_eq!(Status::no_name_left(&resource, "base-xyz").reason(), "AlreadyExists");
    }

    #[test]
    fn generated_names_are_bounded_and_differ() {
        let (a, b) = (generate_name(&"x".repeat(80)), generate_name("y-"));
        assert_eq!(a.len(), MAX_GENERATE_NAME + 5);
        assert!(b.starts_with("y-") && b.len() == 7);
        assert_ne!(generate_name("z-"), generate_name("z-"));
    }
}
