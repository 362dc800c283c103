//! From protobuf to JSON. Fields that a message does not have are skipped, as protobuf prescribes.

use serde_json::{Map, Value, json};

use super::{
    messages::{Form, Message},
    wire::{Fields, Malformed},
};

/// Reads a message. Where a single field comes twice, the last one counts. Messages nest as deep as the tables do.
///
/// # Errors
/// [`Malformed`], also for a field of another type.
pub(super) fn message(shape: &Message, bytes: &[u8]) -> Result<Map<String, Value>, Malformed> {
    let mut read = Map::new();
    for field in Fields(bytes) {
        let (number, value) = field?;
        let Some(known) = shape.0.iter().find(|known| known.number == number) else { continue };
        let key = known.key.to_owned();
        match &known.form {
            Form::Text | Form::OptionalText => _ = read.insert(key, value.text()?.into()),
            #[expect(clippy::cast_possible_wrap, reason = "two's complement is the encoding")]
            Form::Integer | Form::OptionalInteger => _ = read.insert(key, (value.number()? as i64).into()),
            Form::Flag | Form::OptionalFlag => _ = read.insert(key, (value.number()? != 0).into()),
            Form::Message(inner) | Form::OptionalMessage(inner) => {
                read.insert(key, message(inner, value.bytes()?)?.into());
            }
            Form::Texts => {
                let texts = read.entry(key).or_insert_with(|| json!([]));
                texts.as_array_mut().ok_or(Malformed)?.push(value.text()?.into());
            }
            // No message that is read has others.
            Form::TextMap
            | Form::Time
            | Form::OptionalTime
            | Form::Messages(_)
            | Form::OptionalJson
            | Form::OptionalTexts => return Err(Malformed),
        }
    }
    Ok(read)
}
