//! Objects as a table for people: from what rests beside the payload, never from the payload.

use std::time::SystemTime;

use axum::body::Body;
use bytes::{BufMut, Bytes, BytesMut};
use futures::{Stream, StreamExt, stream};
use http::StatusCode;
use repot_storage::Object;
use serde_json::{Value, json};

use super::{
    Answer, Request,
    shown::{self, Shown},
};
use crate::{
    call::Query,
    negotiate::MetaVersion,
    resource::Resource,
    status::Status,
    trimmed,
    wire::{self, ListMeta, Summary},
};

/// What a row carries beside its cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Include {
    Nothing,
    Metadata,
    Object,
}

impl Include {
    pub(super) fn parse(query: &Query) -> Result<Self, Status> {
        match query.get("includeObject") {
            None | Some("Metadata") => Ok(Self::Metadata),
            Some("None") => Ok(Self::Nothing),
            Some("Object") => Ok(Self::Object),
            Some(other) => Err(Status::bad_request(format!(
                "unrecognized includeObject value {other:?}: must be one of None, Metadata, Object"
            ))),
        }
    }
}

/// A whole table. Rows with whole objects are sent as they are read.
///
/// # Errors
/// 429 where there is no room for it.
pub(super) async fn answer(
    request: &Request<'_>,
    version: MetaVersion,
    include: Include,
    meta: &ListMeta,
    mut shown: Shown,
) -> Answer {
    let (store, resource) = (request.server.store.clone(), request.resource.clone());
    let text = before_rows(&resource, version, meta, true);
    if include != Include::Object {
        let row = move |object: &Object| short_row(&resource, object, version, include);
        return shown::send(request, text, shown, row).await;
    }
    let (memory, flow) = (&request.server.memory, request.flow());
    request.keep(memory.to_stream_pieces(&flow, u64::MAX, shown.lengths.longest()).await)?;
    shown.probe(request).await?;
    let single = request.call.info.verb == "get";
    let rows = shown.heads.stream().enumerate().flat_map(move |(at, object)| {
        let comma = stream::iter((at > 0).then(|| Ok(Bytes::from_static(b","))));
        let object = match object {
            Ok(object) => object,
            Err(error) => return comma.chain(stream::iter([Err(error)]).left_stream()),
        };
        let pieces = match single {
            true => wire::object_pieces(&store, &resource, &object).left_stream(),
            false => trimmed::shown_pieces(&store, &resource, &object).right_stream(),
        };
        comma.chain(long_row(&resource, &object, pieces).right_stream())
    });
    let pieces =
        stream::iter([Ok(text.freeze())]).chain(rows).chain(stream::iter([Ok(Bytes::from_static(b"]}"))]));
    Ok(wire::json_response(StatusCode::OK, Body::from_stream(wire::ahead(pieces))))
}

/// Everything of a table that comes before its rows. In a watch only the first table names the columns.
pub(super) fn before_rows(
    resource: &Resource,
    version: MetaVersion,
    meta: &ListMeta,
    columns: bool,
) -> BytesMut {
    let mut text = BytesMut::with_capacity(2048);
    wire::put(
        &mut text,
        &format!("{{\"kind\":\"Table\",\"apiVersion\":\"{}\",\"metadata\":", version.api_version()),
    );
    let _ = serde_json::to_writer((&mut text).writer(), meta);
    wire::put(&mut text, ",\"columnDefinitions\":");
    let definitions = if columns { column_definitions(resource) } else { Value::Array(Vec::new()) };
    let _ = serde_json::to_writer((&mut text).writer(), &definitions);
    wire::put(&mut text, ",\"rows\":[");
    text
}

fn column_definitions(resource: &Resource) -> Value {
    let column = |name: &str, kind: &str, format: &str, description: &str, priority: u8| json!({"name": name, "type": kind, "format": format, "description": description, "priority": priority});
    let mut columns = vec![column("Name", "string", "name", "Name must be unique within a namespace.", 0)];
    columns
        .extend(resource.kind.columns.iter().map(|c| column(c.name, c.kind, "", c.description, c.priority)));
    columns.push(column("Age", "string", "", "Time since the object was created.", 0));
    columns.into()
}

/// One row with nothing or metadata beside its cells.
pub(super) fn short_row(
    resource: &Resource,
    object: &Object,
    version: MetaVersion,
    include: Include,
) -> BytesMut {
    let mut text = match include {
        Include::Metadata => before_object(resource, object),
        Include::Nothing | Include::Object => cells(resource, object),
    };
    if include == Include::Metadata {
        text.extend_from_slice(&wire::partial(object, version));
    }
    wire::put(&mut text, "}");
    text
}

/// One row with the object in these pieces.
pub(super) fn long_row<S: Stream<Item = wire::Piece>>(
    resource: &Resource,
    object: &Object,
    pieces: S,
) -> impl Stream<Item = wire::Piece> + use<S> {
    let before = stream::iter([Ok(before_object(resource, object).freeze())]);
    before.chain(pieces).chain(stream::iter([Ok(Bytes::from_static(b"}"))]))
}

/// The beginning of a row that carries an object.
pub(super) fn before_object(resource: &Resource, object: &Object) -> BytesMut {
    let mut text = cells(resource, object);
    wire::put(&mut text, ",\"object\":");
    text
}

/// The beginning of a row: its cells.
fn cells(resource: &Resource, object: &Object) -> BytesMut {
    let meta = wire::parse_meta(object);
    let mut cells = vec![Value::from(object.key.name.as_str())];
    cells.extend(Summary::of(object).cells.iter().map(|cell| serde_json::to_value(cell).unwrap_or_default()));
    cells.resize(resource.kind.columns.len() + 1, Value::Null);
    cells.push(age(meta.creation_timestamp.as_deref(), SystemTime::now()).into());
    let mut text = BytesMut::with_capacity(object.meta.len() + 256);
    wire::put(&mut text, "{\"cells\":");
    let _ = serde_json::to_writer((&mut text).writer(), &cells);
    text
}

/// Time since creation, as kubectl prints it.
fn age(created: Option<&str>, now: SystemTime) -> String {
    let created = created.and_then(|text| text.parse::<jiff::Timestamp>().ok());
    let now = jiff::Timestamp::try_from(now).ok();
    match (created, now) {
        (Some(created), Some(now)) => human_duration(now.as_second() - created.as_second()),
        _ => "<unknown>".to_owned(),
    }
}

/// Two units at most, fewer the longer it is.
fn human_duration(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |a: i64, unit: &str, b: i64, smaller: &str| match b {
        0 => format!("{a}{unit}"),
        _ => format!("{a}{unit}{b}{smaller}"),
    };
    match seconds {
        ..=-2 => "<invalid>".to_owned(),
        -1..=0 => "0s".to_owned(),
        1..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_ages_as_kubectl_does() {
        for (seconds, text) in [
            (-5, "<invalid>"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (599, "9m59s"),
            (600, "10m"),
            (3 * 3600 + 60, "3h1m"),
            (8 * 3600 + 60, "8h"),
            (2 * 86_400 + 3600, "2d1h"),
            (8 * 86_400 + 3600, "8d"),
            (730 * 86_400 + 86_400, "2y1d"),
            (9 * 365 * 86_400, "9y"),
        ] {
            assert_eq!(human_duration(seconds), text, "{seconds}");
        }
    }
}
