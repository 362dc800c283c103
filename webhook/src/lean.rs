//! Reading an object without what no rule looks at: managedFields are often half of it, and a state may have megabytes.

use std::fmt;

use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value, value::RawValue};

/// An object of which all is read but managedFields.
pub struct Whole(pub Value);

/// An object of which the members beside metadata and status are kept as text, in strings: enough to see whether they change.
pub struct Outside(pub Value);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any(|_: &str| Read::Value)).map(Self)
    }
}

impl<'de> Deserialize<'de> for Outside {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let opened = |member: &str| match member {
            "apiVersion" | "kind" | "status" => Read::Value,
            _ => Read::Text,
        };
        deserializer.deserialize_any(Any(opened)).map(Self)
    }
}

impl From<Whole> for Value {
    fn from(object: Whole) -> Self {
        object.0
    }
}

impl From<Outside> for Value {
    fn from(object: Outside) -> Self {
        object.0
    }
}

/// What becomes of a member.
enum Read {
    Value,
    Text,
    Nothing,
}

/// Reads anything; of an object, each member as the function says. Metadata is read without managedFields everywhere.
struct Any<F>(F);

impl<'de, F: Fn(&str) -> Read> DeserializeSeed<'de> for Any<F> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, F: Fn(&str) -> Read> Visitor<'de> for Any<F> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            let value = match (self.0)(&key) {
                Read::Nothing => {
                    members.next_value::<IgnoredAny>()?;
                    continue;
                }
                _ if key == "metadata" => members.next_value_seed(Any(of_metadata))?,
                Read::Value => members.next_value()?,
                Read::Text => members.next_value::<&RawValue>()?.get().into(),
            };
            object.insert(key, value);
        }
        Ok(object.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }
}

fn of_metadata(member: &str) -> Read {
    if member == "managedFields" { Read::Nothing } else { Read::Value }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn whole(object: &Value) -> Value {
        serde_json::from_str::<Whole>(&object.to_string()).expect("JSON").into()
    }

    fn outside(object: &Value) -> Value {
        serde_json::from_str::<Outside>(&object.to_string()).expect("JSON").into()
    }

    #[test]
    fn leaves_out_managed_fields_and_nothing_else() {
        let mut object = json!({
            "kind": "Shoot", "metadata": {"name": "n", "managedFields": [{"manager": "m"}], "annotations": {"a": "b"}},
            "spec": {"managedFields": 1, "list": [1.5, null, {"x": "\u{e4}\n"}]}, "status": {"phase": "P"},
        });
        let read = whole(&object);
        object["metadata"].as_object_mut().expect("metadata").remove("managedFields");
        assert_eq!(read, object);
    }

    #[test]
    fn keeps_the_text_of_what_is_not_opened() {
        let object = json!({"kind": "ShootState", "metadata": {"name": "n"}, "spec": {"b": [1, 2]}, "status": {"a": 1}});
        let expected = json!({"kind": "ShootState", "metadata": {"name": "n"}, "spec": "{\"b\":[1,2]}", "status": {"a": 1}});
        assert_eq!(outside(&object), expected);
    }

    #[test]
    fn takes_what_is_no_object_as_it_is() {
        for odd in [
            json!(null),
            json!([1, {"metadata": {"managedFields": []}}]),
            json!("t\u{e4}\n"),
            json!(true),
            json!(-1.5),
            json!(u64::MAX),
            json!(-7),
            json!({"metadata": [], "spec": null}),
            json!({"metadata": null}),
        ] {
            assert_eq!(whole(&odd), odd);
        }
    }
}
