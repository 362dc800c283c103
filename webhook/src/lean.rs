//! Reading an object without what no rule looks at: managedFields are often half of it, and a state may have megabytes.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value, value::RawValue};

/// How much of an object is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// All but managedFields.
    Whole,
    /// Of the members beside metadata and status only the text is kept, as a string: enough to see whether they change.
    Outside,
}

/// Reads an object. What is no object comes back as it is.
///
/// # Errors
/// When the text is no JSON, or nested too deeply.
pub fn read(raw: &RawValue, depth: Depth) -> Result<Value, serde_json::Error> {
    Object(depth).deserialize(raw)
}

/// Members that say what the object is stay what they are.
const IDENTITY: [&str; 3] = ["apiVersion", "kind", "status"];

#[derive(Clone, Copy)]
struct Object(Depth);

struct Metadata;

/// Visits the members of an object, and takes anything else as it is.
macro_rules! open {
    ($seed:ident) => {
        impl<'de> DeserializeSeed<'de> for $seed {
            type Value = Value;

            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
                let raw = <&RawValue as serde::Deserialize>::deserialize(deserializer)?;
                let text = raw.get();
                let read = match text.starts_with('{') {
                    true => serde_json::Deserializer::from_str(text).deserialize_map(self),
                    false => serde_json::from_str(text),
                };
                read.map_err(D::Error::custom)
            }
        }
    };
}

open!(Object);
open!(Metadata);

impl<'de> Visitor<'de> for Object {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            let value = match key.as_str() {
                "metadata" => members.next_value_seed(Metadata)?,
                key if self.0 == Depth::Outside && !IDENTITY.contains(&key) => {
                    members.next_value::<&RawValue>()?.get().into()
                }
                _ => members.next_value()?,
            };
            object.insert(key, value);
        }
        Ok(object.into())
    }
}

impl<'de> Visitor<'de> for Metadata {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("metadata")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut metadata = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            if key == "managedFields" {
                members.next_value::<IgnoredAny>()?;
            } else {
                metadata.insert(key, members.next_value()?);
            }
        }
        Ok(metadata.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lean(object: &Value, depth: Depth) -> Value {
        let raw = RawValue::from_string(object.to_string()).expect("JSON");
        read(&raw, depth).expect("an object")
    }

    #[test]
    fn leaves_out_managed_fields_and_nothing_else() {
        let mut object = json!({
            "kind": "Shoot", "metadata": {"name": "n", "managedFields": [{"manager": "m"}], "annotations": {"a": "b"}},
            "spec": {"managedFields": 1, "list": [1.5, null, {"x": "\u{e4}\n"}]}, "status": {"phase": "P"},
        });
        let read = lean(&object, Depth::Whole);
        object["metadata"].as_object_mut().expect("metadata").remove("managedFields");
        assert_eq!(read, object);
    }

    #[test]
    fn keeps_the_text_of_what_is_not_opened() {
        let object = json!({"kind": "ShootState", "metadata": {"name": "n"}, "spec": {"b": [1, 2]}, "status": {"a": 1}});
        let expected = json!({"kind": "ShootState", "metadata": {"name": "n"}, "spec": "{\"b\":[1,2]}", "status": {"a": 1}});
        assert_eq!(lean(&object, Depth::Outside), expected);
    }

    #[test]
    fn takes_what_is_no_object_as_it_is() {
        for odd in
            [json!(null), json!([1]), json!("text"), json!({"metadata": []}), json!({"metadata": null})]
        {
            assert_eq!(lean(&odd, Depth::Whole), odd);
        }
    }
}
