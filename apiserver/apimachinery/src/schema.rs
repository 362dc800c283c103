//! One description of a kind's shape, used by everything: decoding, strict validation, patches, OpenAPI.

/// A part of a kind, described.
#[derive(Debug)]
pub struct Schema {
    /// Name of the definition in OpenAPI documents, where this part has one of its own.
    pub name: Option<&'static str>,
    /// Text that OpenAPI documents and `kubectl explain` show; empty where there is none.
    pub description: &'static str,
    /// What it may hold.
    pub shape: Shape,
}

/// What a part may hold.
#[derive(Debug)]
pub enum Shape {
    /// Declared fields; others are unknown.
    Object(&'static [Field]),
    /// Declared fields that are owned and compared as a whole (`x-kubernetes-map-type: atomic`).
    AtomicObject(&'static [Field]),
    /// A list.
    List(&'static Schema, ListType),
    /// Free keys, all values of one shape.
    Map(&'static Schema),
    /// A string, with OpenAPI's `format` where there is one.
    String(Option<&'static str>),
    /// One of these strings.
    Choice(&'static [&'static str]),
    /// A 64-bit integer.
    Integer,
    /// A boolean.
    Boolean,
    /// Any JSON value, kept token for token and never looked into.
    Opaque,
}

/// How the elements of a list are told apart (`x-kubernetes-list-type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListType {
    /// As a whole.
    Atomic,
    /// By value.
    Set,
    /// By these fields of the element; an absent field counts as empty.
    Map(&'static [&'static str]),
}

/// A field of an object.
#[derive(Debug)]
pub struct Field {
    /// Name of the field in JSON.
    pub name: &'static str,
    /// Schema of the field's value.
    pub schema: &'static Schema,
    /// Whether an object without it is invalid (told by validation, not by decoding).
    pub required: bool,
    /// Whether it is left out of published documents: accepted for old clients only.
    pub hidden: bool,
    /// What it holds where a writer left it out.
    pub default: Option<Default>,
}

/// What a field holds where a writer left it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Default {
    /// A string.
    Text(&'static str),
    /// A number.
    Integer(i64),
    /// A boolean.
    Boolean(bool),
}

impl Field {
    /// A field that may be absent.
    #[must_use]
    pub const fn optional(name: &'static str, schema: &'static Schema) -> Self {
        Self { name, schema, required: false, hidden: false, default: None }
    }

    /// A field that must be there.
    #[must_use]
    pub const fn required(name: &'static str, schema: &'static Schema) -> Self {
        Self { name, schema, required: true, hidden: false, default: None }
    }

    /// A field that holds this where a writer left it out.
    #[must_use]
    pub const fn defaulted(name: &'static str, schema: &'static Schema, default: Default) -> Self {
        Self { name, schema, required: false, hidden: false, default: Some(default) }
    }

    /// A field that is accepted but not published.
    #[must_use]
    pub const fn hidden(name: &'static str, schema: &'static Schema) -> Self {
        Self { name, schema, required: false, hidden: true, default: None }
    }
}

impl Schema {
    /// A part without a definition of its own.
    #[must_use]
    pub const fn of(description: &'static str, shape: Shape) -> Self {
        Self { name: None, description, shape }
    }

    /// A string without `format`, and without a definition of its own.
    #[must_use]
    pub const fn string(description: &'static str) -> Self {
        Self::of(description, Shape::String(None))
    }

    /// One of several strings.
    #[must_use]
    pub const fn choice(description: &'static str, choices: &'static [&'static str]) -> Self {
        Self::of(description, Shape::Choice(choices))
    }

    /// The field with this name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        match &self.shape {
            Shape::Object(fields) | Shape::AtomicObject(fields) => {
                fields.iter().find(|field| field.name == name)
            }
            _ => None,
        }
    }

    /// The shape in words, for error messages.
    #[must_use]
    pub fn expected(&self) -> &'static str {
        match self.shape {
            Shape::Object(_) | Shape::AtomicObject(_) | Shape::Map(_) => "an object",
            Shape::List(..) => "an array",
            Shape::String(_) | Shape::Choice(_) => "a string",
            Shape::Integer => "an integer",
            Shape::Boolean => "a boolean",
            Shape::Opaque => "any value",
        }
    }
}
