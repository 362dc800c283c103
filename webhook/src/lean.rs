//! Reading an object as far as the rules look at it.

use std::fmt;

use repot_rules::opening::Projection;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, value::RawValue};

/// Reads an object.
///
/// # Errors
/// When the text is nested too deeply, or has a number that is none.
pub fn read(raw: &RawValue, opening: &'static Projection) -> Result<Value, serde_json::Error> {
    Opened(opening).deserialize(&mut serde_json::Deserializer::from_str(raw.get()))
}

/// Reads any JSON, and of its objects what is opened.
#[derive(Clone, Copy)]
struct Opened(&'static Projection);

impl<'de> DeserializeSeed<'de> for Opened {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self.0 {
            Projection::Whole => serde::Deserialize::deserialize(deserializer),
            _ => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Opened {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        let mut rest = String::new();
        while let Some(name) = members.next_key::<String>()? {
            if let Some(opening) = self.0.member(&name) {
                if matches!(self.0, Projection::Metadata) && name == "managedFields" {
                    members.next_value::<IgnoredAny>()?;
                    continue;
                }
                let value = members.next_value_seed(Opened(opening))?;
                object.insert(name, value);
            } else {
                let text = members.next_value::<&RawValue>()?.get();
                match self.0 {
                    Projection::Items(_) => rest.extend([name.as_str(), ":", text, ","]),
                    _ => drop(object.insert(name, text.into())),
                }
            }
        }
        if !rest.is_empty() {
            object.insert(String::new(), rest.into());
        }
        Ok(object.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
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

#[cfg(test)]
mod tests {
    use repot_rules::{
        opening::cut,
        watch::{ANNOTATION_CHANGES, OWNER_RECORDS, SHOOT_STATES},
    };
    use serde_json::json;

    use super::*;

    fn object() -> Value {
        json!({
            "apiVersion": "v", "kind": "K", "data": {"b": [1, 2]},
            "metadata": {"annotations": {"a": "b"}, "managedFields": [{"manager": "m"}], "name": "n"},
            "spec": {
                "managedFields": 1, "provider": {"type": "t", "workers": [
                    {"machine": {"type": "m"}, "maximum": 3, "name": "w", "zones": ["a", "b"]}, 7, null, "t\u{e4}\n", -1.5, true,
                    {"name": "x"},
                ]},
                "region": "r", "seedName": "s",
            },
            "status": {"conditions": [{"type": "c"}], "seedName": "s"},
        })
    }

    #[test]
    fn reads_what_the_rules_expect_to_see() {
        for watch in [&ANNOTATION_CHANGES, &OWNER_RECORDS, &SHOOT_STATES] {
            let opening = Projection::of(watch);
            let all =
                [object(), json!(null), json!([1]), json!("text"), json!(u64::MAX), json!({"metadata": []})];
            for value in all {
                let raw = RawValue::from_string(value.to_string()).expect("JSON");
                assert_eq!(read(&raw, opening).expect("an object"), cut(&value, opening), "{}", watch.name);
            }
        }
    }

    #[test]
    fn keeps_the_text_of_what_is_not_opened() {
        let raw = RawValue::from_string(object().to_string()).expect("JSON");
        let shoot = read(&raw, Projection::of(&ANNOTATION_CHANGES)).expect("a Shoot");
        assert_eq!(shoot["metadata"], json!({"annotations": {"a": "b"}, "name": "n"}));
        assert_eq!(shoot["spec"]["managedFields"], "1");
        let pool = json!({"": "machine:{\"type\":\"m\"},maximum:3,", "name": "w", "zones": ["a", "b"]});
        assert_eq!(shoot["spec"]["provider"]["workers"][0], pool);
        let state = read(&raw, Projection::of(&SHOOT_STATES)).expect("a state");
        assert_eq!(state["data"], "{\"b\":[1,2]}");
    }
}
