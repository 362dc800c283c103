//! The lines of a watch: events and bookmarks in the form that was asked for, sent piece by piece.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use repot_api::names::INITIAL_EVENTS_END;
use repot_storage::{Object, ResourceVersion};
use serde_json::json;

use super::{
    End, Include, Watcher,
    flow::Holds,
    shared::{BodyForm, BodyKey, Encoded},
};
use crate::{
    endpoints::table,
    negotiate::{Encoding, Form},
    protobuf,
    status::Status,
    trimmed,
    wire::{self, ListMeta},
};

/// Lines up to this length are printed for each watch: sharing them costs more than it saves.
const SHORT: u64 = 4 << 10;
/// Bytes that are handed to the connection at once.
const PIECE: usize = 256 << 10;
/// How long a watch waits for room for an event.
pub(super) const ROOM_WITHIN: Duration = Duration::from_secs(30);

impl Watcher {
    /// `last`: the object is the last state of one that is gone or leaves the selector.
    pub(super) async fn event(&mut self, kind: &'static str, object: &Object, last: bool) -> Result<(), End> {
        let mut begin = BytesMut::from(format!("{{\"type\":\"{kind}\",\"object\":").as_bytes());
        let (form, end) = match self.plan.form {
            Form::Object => (BodyForm::Object, "}\n"),
            Form::Metadata(version) if self.plan.encoding == Encoding::Protobuf => {
                begin.clear();
                (BodyForm::Frame(version, kind), "")
            }
            Form::Metadata(version) => (BodyForm::Metadata(version), "}\n"),
            Form::Table(version) => {
                let meta = ListMeta { resource_version: object.version.to_string(), ..ListMeta::default() };
                let first = std::mem::take(&mut self.first_table);
                begin.extend_from_slice(&table::before_rows(&self.resource, version, &meta, first));
                let form = match self.plan.include {
                    Include::Object => BodyForm::Object,
                    Include::Metadata => BodyForm::Metadata(version),
                    Include::Nothing => {
                        let include = self.plan.include;
                        begin.extend_from_slice(&table::short_row(&self.resource, object, version, include));
                        wire::put(&mut begin, "]}}\n");
                        return self.short(begin).await;
                    }
                };
                begin.extend_from_slice(&table::before_object(&self.resource, object));
                (form, "}]}}\n")
            }
        };
        let length = match form {
            BodyForm::Object => trimmed::shown_len(&self.resource, object),
            BodyForm::Metadata(_) | BodyForm::Frame(..) => object.meta.len() as u64,
        };
        if length <= SHORT {
            begin.extend_from_slice(&self.print(form, object).await?);
            wire::put(&mut begin, end);
            return self.short(begin).await;
        }
        let (body, holds) = self.body(form, object, last, length).await?;
        self.line(begin.freeze(), &body, holds, end).await
    }

    /// The text of a short object.
    async fn print(&self, form: BodyForm, object: &Object) -> Result<Bytes, End> {
        let BodyForm::Object = form else { return Ok(partial(form, object)) };
        let mut pieces = std::pin::pin!(trimmed::shown_pieces(&self.store, &self.resource, object));
        let mut text = BytesMut::new();
        while let Some(piece) = pieces.next().await {
            text.extend_from_slice(&piece.map_err(|error| self.told(&error))?);
        }
        Ok(text.freeze())
    }

    /// The text of an object that all watches share, and what it is charged to.
    async fn body(
        &self,
        form: BodyForm,
        object: &Object,
        last: bool,
        length: u64,
    ) -> Result<(std::sync::Arc<Encoded>, Holds), End> {
        let key = BodyKey {
            api_version: self.resource.api_version(),
            key: object.key.clone(),
            version: object.version,
            last,
            form,
        };
        let shared = async {
            let charge = self.permit.charge(&key, length).await;
            let body = match form {
                BodyForm::Object => {
                    let pieces = || trimmed::shown_pieces(&self.store, &self.resource, object);
                    self.bodies.get(key, length, pieces).await
                }
                BodyForm::Metadata(_) | BodyForm::Frame(..) => {
                    let text = || futures::stream::iter([Ok(partial(form, object))]);
                    self.bodies.get(key, length, text).await
                }
            };
            let body = body.map_err(|error| self.told(&error))?;
            let holds = Holds { body: Some(body.clone()), charge: Some(charge) };
            Ok((body, holds))
        };
        tokio::select! {
            biased;
            () = self.frames.closed() => Err(End::Quiet),
            () = self.over.cancelled() => Err(End::Quiet),
            shared = tokio::time::timeout(ROOM_WITHIN, shared) => {
                shared.unwrap_or_else(|_| Err(End::Told(Status::watch_events_wait())))
            }
        }
    }

    /// One line that is at hand.
    async fn short(&self, line: BytesMut) -> Result<(), End> {
        let length = line.len() as u64;
        self.send(line.freeze(), false).await?;
        self.metrics.sent(length);
        Ok(())
    }

    /// One line around a text that is shared, sent piece by piece.
    async fn line(&self, begin: Bytes, body: &Encoded, holds: Holds, end: &'static str) -> Result<(), End> {
        let length = begin.len() as u64 + body.length + end.len() as u64;
        self.send(begin, false).await?;
        for piece in &body.pieces {
            let mut rest = piece.clone();
            while !rest.is_empty() {
                let now = rest.split_to(rest.len().min(PIECE));
                self.hand_over(now, holds.clone(), true).await?;
            }
        }
        self.send(Bytes::from_static(end.as_bytes()), true).await?;
        self.metrics.sent(length);
        Ok(())
    }

    pub(super) async fn bookmark(&mut self, version: ResourceVersion, initial_end: bool) -> Result<(), End> {
        if !self.plan.bookmarks {
            return Ok(());
        }
        let annotations = if initial_end { json!({INITIAL_EVENTS_END: "true"}) } else { json!(null) };
        let mut meta = json!({"resourceVersion": version.to_string(), "creationTimestamp": null});
        if initial_end {
            meta["annotations"] = annotations;
        }
        let object = match self.plan.form {
            Form::Object => {
                json!({"kind": self.resource.kind.kind, "apiVersion": self.resource.api_version(), "metadata": meta})
            }
            Form::Metadata(v) => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": v.api_version(), "metadata": meta})
            }
            Form::Table(v) => {
                let object =
                    json!({"kind": "PartialObjectMetadata", "apiVersion": v.api_version(), "metadata": meta});
                let list = json!({"resourceVersion": version.to_string()});
                let row = json!({"cells": [], "object": object});
                json!({"kind": "Table", "apiVersion": v.api_version(), "metadata": list, "columnDefinitions": [], "rows": [row]})
            }
        };
        let frame = protobuf::event(self.plan.encoding, "BOOKMARK", object.to_string().as_bytes());
        self.send(frame, false).await
    }

    /// `begun`: the line has been sent in part.
    pub(super) async fn send(&self, frame: Bytes, begun: bool) -> Result<(), End> {
        self.hand_over(frame, Holds::default(), begun).await
    }

    async fn hand_over(&self, frame: Bytes, holds: Holds, begun: bool) -> Result<(), End> {
        let frame = self.flow.piece(frame, holds);
        tokio::select! {
            biased;
            sent = self.frames.send(frame) => sent.map_err(|_| End::Quiet),
            () = self.over.cancelled() => Err(if begun { End::Cut } else { End::Quiet }),
            () = self.flow.stalled(self.stall) => Err(End::Stalled),
        }
    }
}

/// The metadata of an object as text, or the whole event in protobuf; empty for a form that needs the payload.
fn partial(form: BodyForm, object: &Object) -> Bytes {
    match form {
        BodyForm::Metadata(version) => wire::partial(object, version).freeze(),
        BodyForm::Frame(version, kind) => {
            protobuf::event(Encoding::Protobuf, kind, &wire::partial(object, version))
        }
        BodyForm::Object => Bytes::new(),
    }
}
