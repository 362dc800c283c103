//! Declared bindings: what of a carried object depends on the seed. Pure.
//!
//! The annotation [`BINDINGS`] of a carried object is a JSON object. Its keys are JSON pointers (RFC 6901) into the object, its values
//! are texts in which `${fact}` stands for a fact of the destination. A pointer that matches nothing and a fact without a value are
//! errors: an object with an address of its former seed would look healthy.

use std::collections::BTreeMap;

use serde_json::Value;

/// The annotation with the bindings of an object.
pub const BINDINGS: &str = "migration.gardener.cloud/bindings";

/// Facts of a seed by name; `None` where the fact is known here and has no value yet.
pub type SeedFacts = BTreeMap<&'static str, Option<String>>;

/// Name of the seed.
pub const SEED_NAME: &str = "seed.name";
/// Address of the API servers: the load balancer of Service `kube-apiserver`.
pub const API_SERVER_ADDRESS: &str = "apiServer.address";
/// What names of members of the main etcd begin with, where they join that of the source: no two of one etcd have the same name.
pub const MEMBER_NAME_PREFIX: &str = "etcd.memberNamePrefix";

/// Why an object cannot be made for a seed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindingError {
    /// The annotation is no JSON object of texts.
    #[error("{object}: annotation {BINDINGS} is no JSON object of texts")]
    Annotation {
        /// Kind and name of the carried object.
        object: String,
    },
    /// The pointer matches nothing.
    #[error("{object}: {pointer} matches nothing, or no text")]
    NoMatch {
        /// Kind and name of the carried object.
        object: String,
        /// JSON pointer of the binding.
        pointer: String,
    },
    /// The object depends on the seed, and does not say how.
    #[error(
        "{object}: no binding says what {pointer} is at the destination; declare it in annotation {BINDINGS}"
    )]
    Undeclared {
        /// Kind and name of the carried object.
        object: String,
        /// JSON pointer that needs a binding.
        pointer: &'static str,
    },
    /// The fact is not known.
    #[error("{object}: {pointer} asks for {fact}, which is no fact of a seed; facts are {known}")]
    UnknownFact {
        /// Kind and name of the carried object.
        object: String,
        /// JSON pointer of the binding.
        pointer: String,
        /// Fact that the template asks for.
        fact: String,
        /// Facts that are known.
        known: String,
    },
    /// The fact has no value yet.
    #[error("{object}: {pointer} asks for {fact}, which has no value yet")]
    NoValue {
        /// Kind and name of the carried object.
        object: String,
        /// JSON pointer of the binding.
        pointer: String,
        /// Fact that the template asks for.
        fact: String,
    },
}

/// Rewrites an object for a seed. The annotation stays, for the next migration.
///
/// # Errors
/// [`BindingError`]; the object may be half rewritten then.
pub fn resolve(object: &mut Value, facts: &SeedFacts) -> Result<(), BindingError> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let title = format!("{} {}", text("/kind"), text("/metadata/name"));
    for (pointer, template) in declared(object, &title)? {
        let value = fill(&title, &pointer, &template, facts)?;
        match object.pointer_mut(&pointer) {
            Some(place @ Value::String(_)) => *place = Value::String(value),
            Some(_) | None => return Err(BindingError::NoMatch { object: title, pointer }),
        }
    }
    Ok(())
}

/// The bindings of an object by pointer; none where it has no annotation.
///
/// # Errors
/// [`BindingError::Annotation`].
pub fn declared(object: &Value, title: &str) -> Result<BTreeMap<String, String>, BindingError> {
    let annotations = object.pointer("/metadata/annotations");
    let Some(declared) = annotations.and_then(|annotations| annotations.get(BINDINGS)) else {
        return Ok(BTreeMap::new());
    };
    let bindings = declared.as_str().and_then(|json| serde_json::from_str(json).ok());
    bindings.ok_or_else(|| BindingError::Annotation { object: title.to_owned() })
}

/// The template with values in place of facts.
///
/// # Errors
/// [`BindingError`], with the title of the object and where in it the template is.
pub fn fill(object: &str, pointer: &str, template: &str, facts: &SeedFacts) -> Result<String, BindingError> {
    let (mut filled, mut rest) = (String::new(), template);
    while let Some((before, after)) = rest.split_once("${") {
        let (object, pointer) = (object.to_owned(), pointer.to_owned());
        let Some((fact, after)) = after.split_once('}') else {
            return Err(BindingError::Annotation { object });
        };
        let fact = fact.to_owned();
        let value = match facts.get(fact.as_str()) {
            Some(Some(value)) => value,
            Some(None) => return Err(BindingError::NoValue { object, pointer, fact }),
            None => {
                let known = facts.keys().copied().collect::<Vec<_>>().join(", ");
                return Err(BindingError::UnknownFact { object, pointer, fact, known });
            }
        };
        filled.push_str(before);
        filled.push_str(value);
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn facts(address: Option<&str>) -> SeedFacts {
        let address = address.map(str::to_owned);
        SeedFacts::from([(SEED_NAME, Some("seed-b".to_owned())), (API_SERVER_ADDRESS, address)])
    }

    fn resolved(bindings: Value, facts: &SeedFacts) -> Result<Value, BindingError> {
        let text = bindings.to_string();
        let mut object = json!({
            "kind": "DNSRecord", "metadata": {"name": "api", "annotations": {BINDINGS: text, "kept": "yes"}},
            "spec": {"values": ["10.0.0.1"], "ttl": 30, "args": ["--by=seed-a"]},
        });
        resolve(&mut object, facts).map(|()| object)
    }

    #[test]
    fn facts_of_the_destination_replace_those_of_the_source() {
        let bindings =
            json!({"/spec/values/0": "${apiServer.address}", "/spec/args/0": "--by=${seed.name}!"});
        let object = resolved(bindings.clone(), &facts(Some("10.0.0.2"))).expect("it resolves");
        assert_eq!(object["spec"], json!({"values": ["10.0.0.2"], "ttl": 30, "args": ["--by=seed-b!"]}));
        // For the next migration.
        assert_eq!(object["metadata"]["annotations"], json!({BINDINGS: bindings.to_string(), "kept": "yes"}));
    }

    #[test]
    fn object_without_bindings_stays_as_it_is() {
        let mut object = json!({"kind": "Service", "metadata": {"name": "a"}});
        assert_eq!(resolve(&mut object, &facts(None)), Ok(()));
        assert_eq!(object, json!({"kind": "Service", "metadata": {"name": "a"}}));
    }

    #[test]
    fn what_cannot_be_resolved_is_an_error_that_names_it() {
        let told = |bindings| resolved(bindings, &facts(None)).expect_err("it does not resolve").to_string();
        assert_eq!(
            told(json!({"/spec/values/0": "${apiServer.address}"})),
            "DNSRecord api: /spec/values/0 asks for apiServer.address, which has no value yet"
        );
        assert_eq!(
            told(json!({"/spec/values/0": "${zone}"})),
            "DNSRecord api: /spec/values/0 asks for zone, which is no fact of a seed; facts are apiServer.address, seed.name"
        );
        for pointer in ["/spec/values/1", "/spec/ttl", "spec"] {
            let why = told(json!({pointer: "${seed.name}"}));
            assert_eq!(why, format!("DNSRecord api: {pointer} matches nothing, or no text"));
        }
        for bad in [json!([]), json!({"/spec/values/0": 1}), json!({"/spec/values/0": "${seed.name"})] {
            let why = told(bad);
            assert!(why.ends_with("is no JSON object of texts"), "{why}");
        }
    }
}
