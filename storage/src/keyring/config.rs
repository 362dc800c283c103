//! `EncryptionConfiguration` of `apiserver.config.k8s.io/v1`, read strictly: a field that is not understood is a mistake.

use std::{collections::HashSet, path::PathBuf, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use zeroize::Zeroizing;

use super::{
    Error,
    kms::Kms,
    local::{AesCbc, AesGcm, SecretBox},
    metrics::Metrics,
    node::{self, At},
    provider::{Keys, Named, Provider},
    resource::Pattern,
    ring::{Entry, Ring, Services},
};

const API_VERSION: &str = "apiserver.config.k8s.io/v1";
const KIND: &str = "EncryptionConfiguration";

/// How long a service may take for an answer, unless the configuration says otherwise.
const KMS_TIMEOUT: Duration = Duration::from_secs(3);
/// Nobody waits for longer, and clocks and transports cannot count without end.
const KMS_LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// Bytes of a name that is written with every object.
const MAX_NAME: usize = 4096;

/// What is found in a configuration besides its entries.
struct Found<'a> {
    second: Duration,
    metrics: &'a Arc<Metrics>,
    services: Services,
    names: HashSet<String>,
}

/// Reads a configuration. Its services are not asked yet. For `second` see [`super::Follow`].
pub(super) fn parse(text: &str, second: Duration, metrics: &Arc<Metrics>) -> Result<Ring, Error> {
    let tree = node::parse(text)?;
    let mut fields = At::root(&tree).fields()?;
    expect(&fields.take("apiVersion")?, API_VERSION)?;
    expect(&fields.take("kind")?, KIND)?;
    let resources = fields.take("resources")?;
    fields.done("apiVersion, kind, resources")?;
    let mut entries: Vec<Entry> = Vec::new();
    let mut found = Found { second, metrics, services: Services::default(), names: HashSet::new() };
    for at in resources.list()? {
        let entry = entry(&at, &entries, &mut found)?;
        entries.push(entry);
    }
    Ok(Ring::new(entries, found.services))
}

fn expect(at: &At<'_>, wanted: &str) -> Result<(), Error> {
    if at.text()? == wanted { Ok(()) } else { Err(at.error(format!("must be {wanted}"))) }
}

fn entry(at: &At<'_>, earlier: &[Entry], found: &mut Found<'_>) -> Result<Entry, Error> {
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
    let providers = providers.list()?.iter().map(|at| provider(at, found)).collect::<Result<_, _>>()?;
    Ok(Entry { patterns, providers })
}

/// What is hidden by a wildcard is refused, as kube-apiserver does. A resource that is named twice, by two entries, has the
/// providers of both, in order.
fn check_overlap(at: &At<'_>, new: &Pattern, same: &[Pattern], earlier: &[Entry]) -> Result<(), Error> {
    if same.iter().any(|own| own.masks(new) || new.masks(own)) {
        return Err(at.error("overlaps with another resource of this list; remove one of them"));
    }
    if earlier.iter().flat_map(|entry| &entry.patterns).any(|own| own.is_wild() && own.masks(new)) {
        return Err(at.error("has no effect, an earlier entry covers it; move this entry up or remove it"));
    }
    Ok(())
}

fn provider(at: &At<'_>, found: &mut Found<'_>) -> Result<Provider, Error> {
    let mut fields = at.fields()?;
    let names: Vec<&str> = fields.names().collect();
    let [name] = names[..] else {
        return Err(at.error("must name exactly one provider; start a new list element for each"));
    };
    let settings = fields.take(name)?;
    const AES: &str = "16, 24 or 32 bytes";
    match name {
        "aesgcm" => Ok(Provider::AesGcm(keys(&settings, name, AES, AesGcm::new, found.metrics)?)),
        "secretbox" => {
            Ok(Provider::SecretBox(keys(&settings, name, "32 bytes", SecretBox::new, found.metrics)?))
        }
        "aescbc" => Ok(Provider::AesCbc(keys(&settings, name, AES, AesCbc::new, found.metrics)?)),
        "kms" => Ok(Provider::Kms(kms(&settings, found)?)),
        // Not by a forgotten word: this one means that keys rest in clear.
        "identity" if settings.is_nothing() => Err(settings.error("is empty; write identity: {}")),
        "identity" => settings.fields()?.done("none").map(|()| Provider::Identity),
        other => {
            let known = "aesgcm, secretbox, aescbc, kms, identity";
            Err(at.error(format!("unknown provider {}; known: {known}", node::shown(other))))
        }
    }
}

fn keys<K>(
    at: &At<'_>,
    kind: &str,
    sizes: &str,
    make: impl Fn(&[u8]) -> Option<K>,
    metrics: &Metrics,
) -> Result<Keys<K>, Error> {
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
        let key = make(&bytes).ok_or_else(wrong_size)?;
        let name = name.text()?;
        result.push(Named::new(kind, name, key, metrics.wraps(kind, name)));
    }
    Ok(Keys(result))
}

fn check_name<'a>(at: &At<'a>, seen: &mut HashSet<&'a str>) -> Result<(), Error> {
    let name = at.text()?;
    check_prefix_part(at, name)?;
    if !seen.insert(name) {
        return Err(at.error("is the name of an earlier key too; keys are found by name"));
    }
    Ok(())
}

/// A name that is written before whatever is wrapped.
fn check_prefix_part(at: &At<'_>, name: &str) -> Result<(), Error> {
    if name.is_empty() || name.contains(':') {
        return Err(at.error("must not be empty or have a colon: it is part of a prefix that ends with one"));
    }
    if name.len() > MAX_NAME {
        return Err(at.error(format!("has more than {MAX_NAME} bytes: it is written with every object")));
    }
    Ok(())
}

fn kms(at: &At<'_>, found: &mut Found<'_>) -> Result<Arc<Kms>, Error> {
    let mut fields = at.fields()?;
    let version = fields.maybe("apiVersion");
    // Version 1 is what a configuration without one means.
    match version.as_ref().map_or(Ok("v1"), At::text)? {
        "v2" => {}
        "v1" => {
            let at = version.as_ref().unwrap_or(at);
            return Err(at.error("version 1 of the protocol is not supported; use apiVersion: v2"));
        }
        _ => return Err(at.error("apiVersion must be v2")),
    }
    if let Some(size) = fields.maybe("cachesize") {
        return Err(size.error("is not a setting of apiVersion v2"));
    }
    let (name, endpoint, timeout) = (fields.take("name")?, fields.take("endpoint")?, fields.maybe("timeout"));
    fields.done("apiVersion, name, endpoint, timeout")?;
    check_prefix_part(&name, name.text()?)?;
    if !found.names.insert(name.text()?.to_owned()) {
        return Err(name.error("is the name of an earlier kms provider too; names must be unique"));
    }
    let socket = socket(&endpoint)?;
    let timeout = timeout.map_or(Ok(KMS_TIMEOUT), |at| {
        let read = duration(at.text()?).filter(|timeout| !timeout.is_zero() && *timeout <= KMS_LONGEST);
        read.ok_or_else(|| {
            at.error("must be a duration longer than nothing and no longer than a year, such as 3s")
        })
    })?;
    let kms = Arc::new(Kms::new(name.text()?, socket, timeout, found.second, found.metrics));
    found.services.add(Arc::clone(&kms), timeout);
    Ok(kms)
}

/// `unix:///run/kms.sock` is a file, `unix:///@kms` a name of Linux that is no file.
fn socket(at: &At<'_>) -> Result<PathBuf, Error> {
    let wrong = || at.error("must be unix:// and the absolute path of a socket");
    let path = at.text()?.strip_prefix("unix://").filter(|path| path.starts_with('/')).ok_or_else(wrong)?;
    if path.len() == 1 || path.contains(['?', '#', '%', '\0']) {
        return Err(wrong());
    }
    Ok(path.strip_prefix('/').filter(|name| name.starts_with('@')).unwrap_or(path).into())
}

/// A duration as Go writes it, such as `3s` or `1m30.5s`.
fn duration(text: &str) -> Option<Duration> {
    const UNITS: [(&str, f64); 7] =
        [("ns", 1e-9), ("us", 1e-6), ("\u{b5}s", 1e-6), ("ms", 1e-3), ("h", 3600.0), ("m", 60.0), ("s", 1.0)];
    let (mut rest, mut seconds) = (text, 0.0);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        let (unit, factor) = UNITS.into_iter().find(|(unit, _)| rest[digits..].starts_with(unit))?;
        seconds += number * factor;
        rest = &rest[digits + unit.len()..];
    }
    (!text.is_empty()).then(|| Duration::try_from_secs_f64(seconds).ok()).flatten()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn reads_durations_as_go_does() {
        for (text, millis) in
            [("3s", 3000), ("1m30.5s", 90_500), ("100ms", 100), (".5s", 500), ("1h", 3_600_000)]
        {
            assert_eq!(duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "3", "s", "3 s", "-3s", "3x", "1.2.3s"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }
}
