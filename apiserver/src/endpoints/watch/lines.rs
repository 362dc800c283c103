//! The lines of a watch: events and bookmarks in the form that was asked for, sent piece by piece.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt, stream};
use repot_api::names::INITIAL_EVENTS_END;
use repot_storage::{Object, ResourceVersion};
use serde_json::json;

use super::{End, Include, Watcher};
use crate::{
    endpoints::table,
    negotiate::Form,
    protobuf,
    wire::{self, ListMeta},
};

/// A client that takes nothing for this long is let go; it comes back from where it was.
const STALL: Duration = Duration::from_secs(30);
/// Pieces of a line that are shorter are joined.
const JOINED: usize = 64 << 10;

impl Watcher {
    pub(super) async fn event(&mut self, kind: &str, object: &Object) -> Result<(), End> {
        let begin = BytesMut::from(format!("{{\"type\":\"{kind}\",\"object\":").as_bytes());
        match self.plan.form {
            Form::Object => {
                let pieces = wire::shown_pieces(&self.store, &self.resource, object);
                self.line(begin, pieces, "}\n").await
            }
            Form::Metadata(version) => {
                let frame = protobuf::event(self.plan.encoding, kind, &wire::partial(object, version));
                let length = frame.len() as u64;
                self.send(frame, false).await?;
                self.metrics.sent(length);
                Ok(())
            }
            Form::Table(version) => {
                let mut begin = begin;
                let meta = ListMeta { resource_version: object.version.to_string(), ..ListMeta::default() };
                let first = std::mem::take(&mut self.first_table);
                begin.extend_from_slice(&table::before_rows(&self.resource, version, &meta, first));
                if self.plan.include == Include::Object {
                    let pieces = wire::shown_pieces(&self.store, &self.resource, object);
                    let row = table::long_row(&self.resource, object, pieces);
                    return self.line(begin, row, "]}}\n").await;
                }
                let row = table::short_row(&self.resource, object, version, self.plan.include).freeze();
                self.line(begin, stream::iter([Ok(row)]), "]}}\n").await
            }
        }
    }

    /// One line, sent piece by piece.
    async fn line(
        &self,
        mut frame: BytesMut,
        pieces: impl Stream<Item = wire::Piece>,
        end: &str,
    ) -> Result<(), End> {
        let mut pieces = std::pin::pin!(pieces);
        let (mut begun, mut length) = (false, frame.len() + end.len());
        while let Some(piece) = pieces.next().await {
            let piece = match piece {
                Ok(piece) => piece,
                Err(error) if begun => {
                    tracing::error!(%error, "a line of a watch had to be cut");
                    return Err(End::Cut);
                }
                Err(error) => return Err(self.told(&error)),
            };
            length += piece.len();
            if frame.len() + piece.len() < JOINED {
                frame.extend_from_slice(&piece);
                continue;
            }
            if !frame.is_empty() {
                self.send(frame.split().freeze(), begun).await?;
                begun = true;
            }
            self.send(piece, begun).await?;
            begun = true;
        }
        wire::put(&mut frame, end);
        self.send(frame.freeze(), begun).await?;
        self.metrics.sent(length as u64);
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
        let given_up = async {
            tokio::select! {
                () = self.over.cancelled() => {}
                () = tokio::time::sleep(STALL) => tracing::debug!("a watcher that takes nothing is let go"),
            }
        };
        tokio::select! {
            biased;
            sent = self.frames.send(frame) => sent.map_err(|_| End::Quiet),
            () = given_up => Err(if begun { End::Cut } else { End::Quiet }),
        }
    }
}
