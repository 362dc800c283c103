//! Schemas as OpenAPI definitions.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{Dress, GroupVersion, meta_types};
use crate::{
    kind::Kind,
    schema::{Default, Field, ListType, Schema, Shape},
};

/// The definitions of one document, collected as they are referred to.
pub(super) struct Definitions {
    dress: Dress,
    done: BTreeMap<String, Value>,
}

impl Definitions {
    pub(super) fn new(dress: Dress) -> Self {
        Self { dress, done: BTreeMap::new() }
    }

    pub(super) fn finish(self) -> Value {
        self.done.into_iter().collect::<Map<_, _>>().into()
    }

    /// `{"$ref": …}` to a named schema, which is defined on the way.
    pub(super) fn reference(&mut self, name: &str, schema: &'static Schema) -> Value {
        if !self.done.contains_key(name) {
            self.done.insert(name.to_owned(), Value::Null);
            let body = self.body(schema);
            self.done.insert(name.to_owned(), body);
        }
        self.pointer(name)
    }

    /// The kind, tagged with its group, version and kind.
    pub(super) fn kind(&mut self, group: &GroupVersion, kind: &'static Kind) -> Value {
        let name = kind.schema.name.unwrap_or(kind.kind);
        let reference = self.reference(name, kind.schema);
        self.tag(name, group, kind.kind);
        if let (false, Some(Value::Object(definition))) =
            (kind.selectable.is_empty(), self.done.get_mut(name))
        {
            let fields = kind.selectable.iter().map(|path| json!({"fieldPath": path})).collect();
            definition.insert("x-kubernetes-selectable-fields".to_owned(), fields);
        }
        reference
    }

    /// The list of a kind.
    pub(super) fn list(&mut self, group: &GroupVersion, kind: &'static Kind) -> Value {
        let item = self.kind(group, kind);
        let meta = self.inner(&meta_types::LIST_META);
        let name = format!("{}List", kind.schema.name.unwrap_or(kind.kind));
        let definition = json!({
            "description": format!("A list of {} objects.", kind.kind),
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string"},
                "items": {"type": "array", "items": self.dressed(item)},
                "kind": {"type": "string"},
                "metadata": meta,
            },
        });
        self.done.insert(name.clone(), definition);
        self.tag(&name, group, kind.list_kind);
        self.pointer(&name)
    }

    /// A shared type of `meta.k8s.io`.
    pub(super) fn shared(&mut self, schema: &'static Schema) -> Value {
        self.reference(schema.name.unwrap_or_default(), schema)
    }

    fn pointer(&self, name: &str) -> Value {
        match self.dress {
            Dress::V2 => json!({"$ref": format!("#/definitions/{name}")}),
            Dress::V3 => json!({"$ref": format!("#/components/schemas/{name}")}),
        }
    }

    fn tag(&mut self, name: &str, group: &GroupVersion, kind: &str) {
        if let Some(Value::Object(definition)) = self.done.get_mut(name) {
            let tag = json!([{"group": group.group, "version": group.version, "kind": kind}]);
            definition.insert("x-kubernetes-group-version-kind".to_owned(), tag);
        }
    }

    /// A reference where other words stand beside it: version 3 wants it wrapped.
    fn dressed(&self, reference: Value) -> Value {
        match self.dress {
            Dress::V2 => reference,
            Dress::V3 => json!({"allOf": [reference]}),
        }
    }

    fn inner(&mut self, schema: &'static Schema) -> Value {
        let Some(name) = schema.name else { return self.body(schema) };
        let reference = self.reference(name, schema);
        let mut value = self.dressed(reference);
        if let (Value::Object(map), false) = (&mut value, schema.description.is_empty()) {
            map.insert("description".to_owned(), schema.description.into());
        }
        value
    }

    fn property(&mut self, field: &Field) -> Value {
        let mut value = self.inner(field.schema);
        if let Some(default) = field.default {
            value["default"] = match default {
                Default::Text(text) => text.into(),
                Default::Integer(number) => number.into(),
                Default::Boolean(value) => value.into(),
            };
        }
        value
    }

    fn body(&mut self, schema: &'static Schema) -> Value {
        let mut body = match &schema.shape {
            Shape::Object(fields) | Shape::AtomicObject(fields) => {
                let shown = || fields.iter().filter(|field| !field.hidden);
                let required: Vec<_> =
                    shown().filter(|field| field.required).map(|field| field.name).collect();
                let properties: Map<_, _> =
                    shown().map(|field| (field.name.to_owned(), self.property(field))).collect();
                let mut body = json!({"type": "object", "properties": properties});
                if !required.is_empty() {
                    body["required"] = required.into();
                }
                if matches!(schema.shape, Shape::AtomicObject(_)) {
                    body["x-kubernetes-map-type"] = "atomic".into();
                }
                body
            }
            Shape::List(item, kind) => self.list_body(item, *kind),
            Shape::Map(value) => json!({"type": "object", "additionalProperties": self.inner(value)}),
            Shape::String(None) => json!({"type": "string"}),
            Shape::String(Some(format)) => json!({"type": "string", "format": format}),
            Shape::Choice(choices) => json!({"type": "string", "enum": choices}),
            Shape::Integer => json!({"type": "integer", "format": "int64"}),
            Shape::Boolean => json!({"type": "boolean"}),
            // Owned as a whole. Any value is taken, but clients that compare by the schema see the mark on objects only.
            Shape::Opaque => json!({"type": "object", "x-kubernetes-map-type": "atomic"}),
        };
        if !schema.description.is_empty() {
            body["description"] = schema.description.into();
        }
        body
    }

    fn list_body(&mut self, item: &'static Schema, kind: ListType) -> Value {
        let mut items = self.inner(item);
        if let (Some(_), Value::Object(map)) = (item.name, &mut items) {
            // `kubectl explain` would say it twice: here, and where the reference leads.
            map.remove("description");
        }
        let items = match kind {
            ListType::Map(keys) => self.with_key_defaults(items, item, keys),
            ListType::Atomic | ListType::Set => items,
        };
        match kind {
            ListType::Atomic => json!({"type": "array", "items": items, "x-kubernetes-list-type": "atomic"}),
            ListType::Set => json!({"type": "array", "items": items, "x-kubernetes-list-type": "set"}),
            ListType::Map(keys) => json!({
                "type": "array",
                "items": items,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": keys,
            }),
        }
    }

    /// Key fields that may be absent count as empty. The default says so to clients that compute ownership themselves.
    fn with_key_defaults(&mut self, mut items: Value, item: &'static Schema, keys: &[&'static str]) -> Value {
        let definition = match item.name {
            Some(name) => self.done.get_mut(name),
            None => Some(&mut items),
        };
        let Some(definition) = definition else { return items };
        for key in keys {
            let absent = item.field(key).filter(|field| !field.required);
            let property = definition.pointer_mut(&format!("/properties/{key}"));
            if let (Some(_), Some(Value::Object(property))) = (absent, property) {
                property.entry("default").or_insert_with(|| "".into());
            }
        }
        items
    }
}
