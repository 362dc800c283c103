//! JSON as CEL sees it.

use std::collections::HashMap;

use bytes::Bytes;
use cel::{
    Value,
    objects::{Key, Map},
};

/// A value as text: nothing, a whole, or some members of an object.
#[derive(Clone, Debug, Default)]
pub struct Json(Form);

#[derive(Clone, Debug, Default)]
enum Form {
    #[default]
    Null,
    Whole(Bytes),
    Members(Vec<(String, Bytes)>),
    Oversized(usize),
}

impl Json {
    /// A value that is given as one JSON text.
    #[must_use]
    pub fn whole(text: Bytes) -> Self {
        Self(Form::Whole(text))
    }

    /// An object of these members.
    #[must_use]
    pub fn members(members: Vec<(String, Bytes)>) -> Self {
        Self(Form::Members(members))
    }

    /// What is so large that it has not even been read.
    #[must_use]
    pub fn oversized(bytes: usize) -> Self {
        Self(Form::Oversized(bytes))
    }

    /// Length in bytes: of the text, of all keys and values, or of what was too large to read. 0 for null.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Form::Null => 0,
            Form::Oversized(bytes) => *bytes,
            Form::Whole(text) => text.len(),
            Form::Members(members) => members.iter().map(|(key, text)| key.len() + text.len()).sum(),
        }
    }

    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self.0, Form::Null)
    }

    /// For an expression, and how many values there are in it.
    ///
    /// # Errors
    /// Text that is no JSON, or nested deeper than the parser goes.
    pub fn to_value(&self) -> Result<(Value, usize), String> {
        let mut count = 1;
        let value = match &self.0 {
            Form::Null => Value::Null,
            Form::Oversized(_) => return Err("a value is too large to be looked at".to_owned()),
            Form::Whole(text) => parse(text, &mut count)?,
            Form::Members(members) => {
                let mut map = HashMap::new();
                for (key, text) in members {
                    map.insert(Key::String(key.clone().into()), parse(text, &mut count)?);
                }
                Value::Map(Map { map: map.into() })
            }
        };
        Ok((value, count))
    }
}

fn parse(text: &[u8], count: &mut usize) -> Result<Value, String> {
    let value =
        serde_json::from_slice(text).map_err(|_| "a value is nested too deep to be looked at".to_owned())?;
    Ok(convert(value, count))
}

fn convert(value: serde_json::Value, count: &mut usize) -> Value {
    use serde_json::Value as J;
    *count += 1;
    match value {
        J::Null => Value::Null,
        J::Bool(value) => Value::Bool(value),
        // Whole numbers are signed in CEL, as kube-apiserver gives them to it.
        J::Number(number) => match number.as_i64() {
            Some(whole) => Value::Int(whole),
            None => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        J::String(text) => Value::from(text),
        J::Array(items) => {
            let items: Vec<Value> = items.into_iter().map(|item| convert(item, count)).collect();
            Value::List(items.into())
        }
        J::Object(members) => {
            let members =
                members.into_iter().map(|(key, value)| (Key::String(key.into()), convert(value, count)));
            Value::Map(Map { map: members.collect::<HashMap<_, _>>().into() })
        }
    }
}
