//! JSON whose text is kept.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned};
use serde_json::value::RawValue;

/// JSON that is read and written token for token: order of keys, spelling of numbers and white space stay as they came.
///
/// The text may hold credentials, so [`fmt::Debug`] shows its length alone.
#[derive(Clone)]
pub struct RawJson(Box<RawValue>);

impl RawJson {
    /// Takes a text over after it was checked to be one JSON value.
    ///
    /// # Errors
    /// When the text is not JSON.
    pub fn parse(text: impl Into<String>) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text.into()).map(Self)
    }

    /// Encodes a value as JSON.
    ///
    /// # Errors
    /// When the value has no JSON form, such as a map whose keys are not texts.
    pub fn encode(value: &(impl Serialize + ?Sized)) -> Result<Self, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(Self)
    }

    /// Decodes the JSON into a type of the caller.
    ///
    /// # Errors
    /// When the JSON does not have the shape of that type.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.get())
    }

    /// The text as it came.
    #[must_use]
    pub fn get(&self) -> &str {
        self.0.get()
    }

    /// Whether the value is JSON's `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.get().trim() == "null"
    }
}

impl From<Box<RawValue>> for RawJson {
    fn from(value: Box<RawValue>) -> Self {
        Self(value)
    }
}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawJson({} bytes)", self.get().len())
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ODD: &str = r#"{"z": 1.0, "a": 1e400, "\u0041": -0.0, "z": 12345678901234567890123}"#;

    #[test]
    fn text_is_kept_token_for_token() {
        let raw: RawJson = serde_json::from_str(ODD).expect("JSON");
        assert_eq!(raw.get(), ODD);
        assert_eq!(serde_json::to_string(&raw).expect("JSON"), ODD);
        assert!(RawJson::parse("{").is_err());
    }

    #[test]
    fn debug_shows_no_content() {
        let raw = RawJson::parse(r#"{"password":"geheim"}"#).expect("JSON");
        assert_eq!(format!("{raw:?}"), "RawJson(21 bytes)");
    }
}
