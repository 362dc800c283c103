//! `EncryptionConfiguration` of `apiserver.config.k8s.io/v1`, read strictly: a field that is not understood is a mistake.

use std::collections::HashSet;

use base64::{Engine, engine::general_purpose::STANDARD};
use zeroize::Zeroizing;

use super::{
    Entry, Error, Pattern, Provider,
    node::{self, At},
    provider::Named,
};

const API_VERSION: &str = "apiserver.config.k8s.io/v1";
const KIND: &str = "EncryptionConfiguration";

/// Reads a configuration.
pub(super) fn parse(text: &str) -> Result<Vec<Entry>, Error> {
    let tree = node::parse(text)?;
    let mut fields = At::root(&tree).fields()?;
    expect(&fields.take("apiVersion")?, API_VERSION)?;
    expect(&fields.take("kind")?, KIND)?;
    let resources = fields.take("resources")?;
    fields.done("apiVersion, kind, resources")?;
    let mut entries: Vec<Entry> = Vec::new();
    for at in resources.list()? {
        let entry = entry(&at, &entries)?;
        entries.push(entry);
    }
    Ok(entries)
}

fn expect(at: &At<'_>, wanted: &str) -> Result<(), Error> {
    if at.text()? == wanted { Ok(()) } else { Err(at.error(format!("must be {wanted}"))) }
}

fn entry(at: &At<'_>, earlier: &[Entry]) -> Result<Entry, Error> {
    let mut fields = at.fields()?;
    let resources = fields.take("resources")?;
    let providers = fields.take("providers")?;
    fields.done("resources, providers")?;
    let mut patterns = Vec::new();
    for at in resources.list()? {
        let pattern = Pattern::parse(at.text()?).map_err(|what| at.error(what))?;
        check_overlap(&at, &pattern, &patterns, earlier)?;
        patterns.push(pattern);
    }
    let providers = providers.list()?.iter().map(provider).collect::<Result<_, _>>()?;
    Ok(Entry { patterns, providers })
}

/// Two patterns for one resource make it hard to see which keys are used: refused, as kube-apiserver does.
fn check_overlap(at: &At<'_>, new: &Pattern, same: &[Pattern], earlier: &[Entry]) -> Result<(), Error> {
    if same.iter().any(|own| own.masks(new) || new.masks(own)) {
        return Err(at.error("overlaps with another resource of this list; remove one of them"));
    }
    if earlier.iter().flat_map(|entry| &entry.patterns).any(|own| own.masks(new)) {
        return Err(at.error("has no effect, an earlier entry covers it; move this entry up or remove it"));
    }
    Ok(())
}

fn provider(at: &At<'_>) -> Result<Provider, Error> {
    let mut fields = at.fields()?;
    let names: Vec<&str> = fields.names().collect();
    let [name] = names[..] else {
        return Err(at.error("must name exactly one provider; start a new list element for each"));
    };
    let settings = fields.take(name)?;
    match name {
        "aesgcm" => Ok(Provider::AesGcm(keys(
            &settings,
            "16, 24 or 32 bytes",
            Named::<aws_lc_rs::aead::LessSafeKey>::aesgcm,
        )?)),
        "secretbox" => Ok(Provider::SecretBox(keys(
            &settings,
            "32 bytes",
            Named::<crypto_secretbox::XSalsa20Poly1305>::secretbox,
        )?)),
        "identity" => settings.fields()?.done("none").map(|()| Provider::Identity),
        "kms" | "aescbc" => Err(settings.error("is not supported yet; use aesgcm or secretbox")),
        other => Err(
            at.error(format!("unknown provider {}; known: aesgcm, secretbox, identity", node::shown(other)))
        ),
    }
}

fn keys<K>(
    at: &At<'_>,
    sizes: &str,
    make: impl Fn(&str, &[u8]) -> Option<Named<K>>,
) -> Result<Vec<Named<K>>, Error> {
    let mut fields = at.fields()?;
    let keys = fields.take("keys")?;
    fields.done("keys")?;
    let mut seen = HashSet::new();
    let mut result = Vec::new();
    for at in keys.list()? {
        let mut fields = at.fields()?;
        let name = fields.take("name")?;
        let secret = fields.take("secret")?;
        fields.done("name, secret")?;
        check_name(&name, &mut seen)?;
        let bytes = STANDARD.decode(secret.text()?).map(Zeroizing::new);
        let bytes = bytes.map_err(|_| secret.error("must be base64 (the standard alphabet, padded)"))?;
        let wrong_size = || secret.error(format!("must decode to {sizes}, has {}", bytes.len()));
        result.push(make(name.text()?, &bytes).ok_or_else(wrong_size)?);
    }
    Ok(result)
}

fn check_name<'a>(at: &At<'a>, seen: &mut HashSet<&'a str>) -> Result<(), Error> {
    let name = at.text()?;
    if name.is_empty() || name.contains(':') {
        return Err(at.error("must not be empty or have a colon: it is part of a prefix that ends with one"));
    }
    if !seen.insert(name) {
        return Err(at.error("is the name of an earlier key too; keys are found by name"));
    }
    Ok(())
}
