//! One watch for each kind. A kind that is not served is asked for again from time to time.

use std::{collections::BTreeMap, pin::pin, time::Duration};

use futures::{StreamExt, future::join_all};
use kube::{
    Api, Client, ResourceExt,
    api::ListParams,
    core::DynamicObject,
    runtime::watcher::{self, Config, Event, watcher},
};
use tokio_util::sync::CancellationToken;

use super::{Availability, Kind, MOST_OBJECTS, State, kinds::Object};
use crate::text::one_line;

/// Objects that are read with one request.
const PAGE: u32 = 500;
/// The first pause after a failure; each further one is twice as long.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long it is waited for the answer that says that the API server is back.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Longest message about a failure, in characters.
const MOST_WORDS: usize = 400;

/// Follows all kinds until `stop`, in one namespace or in all of them.
pub(in crate::ui) async fn follow_all(
    client: &Client,
    namespace: Option<&str>,
    state: &State,
    stop: &CancellationToken,
) {
    let api = |kind: Kind| -> Api<DynamicObject> {
        match namespace.filter(|_| kind.is_namespaced()) {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind.resource()),
            None => Api::all_with(client.clone(), &kind.resource()),
        }
    };
    let all = Kind::ALL.into_iter().map(|kind| follow(kind, api(kind), state));
    stop.run_until_cancelled(join_all(all)).await;
}

async fn follow(kind: Kind, api: Api<DynamicObject>, state: &State) {
    let mut events = pin!(watcher(api.clone(), Config::default().page_size(PAGE)));
    let mut listed = Listing::default();
    let mut pause = PAUSE;
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                if !matches!(event, Event::Init) {
                    pause = PAUSE;
                }
                take(kind, event, &mut listed, state);
            }
            Err(error) => {
                let availability = availability(&error);
                tracing::debug!(?kind, %error, "watch failed, trying again");
                let is_failing = matches!(availability, Availability::Failing(_));
                state.tell(kind, availability);
                tokio::time::sleep(pause).await;
                pause = LONGEST_PAUSE.min(pause * 2);
                if is_failing && state.was_listed(kind) && does_answer(&api).await {
                    // A watch that goes on where it was tells nothing until something changes.
                    state.tell(kind, Availability::Watched);
                }
            }
        }
    }
}

/// Whether the kind can be listed at this moment.
async fn does_answer(api: &Api<DynamicObject>) -> bool {
    let one = ListParams::default().limit(1);
    matches!(tokio::time::timeout(ANSWER_LIMIT, api.list_metadata(&one)).await, Ok(Ok(_)))
}

/// Objects of a list that has not ended.
#[derive(Default)]
struct Listing {
    objects: BTreeMap<String, Object>,
    is_cut: bool,
}

fn take(kind: Kind, event: Event<DynamicObject>, listed: &mut Listing, state: &State) {
    match event {
        Event::Init => *listed = Listing::default(),
        Event::InitApply(_) if listed.objects.len() >= MOST_OBJECTS => listed.is_cut = true,
        Event::InitApply(object) => {
            let key = key(&object);
            if let Some(object) = kind.read(object) {
                listed.objects.insert(key, object);
            }
        }
        Event::InitDone => {
            let Listing { objects, is_cut } = std::mem::take(listed);
            state.replace(kind, objects, is_cut);
        }
        Event::Apply(object) => {
            let key = key(&object);
            match kind.read(object) {
                Some(object) => state.apply(kind, key, object),
                None => state.remove(kind, key),
            }
            state.tell(kind, Availability::Watched);
        }
        Event::Delete(object) => {
            state.remove(kind, key(&object));
            state.tell(kind, Availability::Watched);
        }
    }
}

fn key(object: &DynamicObject) -> String {
    one_line(&format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any()))
}

fn availability(error: &watcher::Error) -> Availability {
    use watcher::Error;
    let code = match error {
        Error::InitialListFailed(error) | Error::WatchStartFailed(error) | Error::WatchFailed(error) => {
            match error {
                kube::Error::Api(status) => Some(status.code),
                _ => None,
            }
        }
        Error::WatchError(status) => Some(status.code),
        Error::NoResourceVersion => None,
    };
    let words: String = one_line(&crate::objects::causes(error)).chars().take(MOST_WORDS).collect();
    match code {
        Some(404) => Availability::NotServed,
        Some(401 | 403) => Availability::Forbidden(words),
        _ => Availability::Failing(words),
    }
}
