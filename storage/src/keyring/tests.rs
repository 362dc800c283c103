use std::os::unix::fs::PermissionsExt;

use super::*;

const KEY1: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const KEY2: &str = "ICECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const PATH: &[u8] = b"/registry/g/r/ns/name";

fn mk_config(entries: &str) -> String {
    format!("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n{entries}")
}

fn mk_keyring(providers: &str) -> Keyring {
    Keyring::parse(&mk_config(&format!("- resources: ['*.*']\n  providers: [{providers}]\n"))).unwrap()
}

fn mk_provider(kind: &str, name: &str, secret: &str) -> String {
    format!("{{{kind}: {{keys: [{{name: {name}, secret: {secret}}}]}}}}")
}

fn mk_key() -> Key {
    Key { group: "g".into(), resource: "r".into(), namespace: "ns".into(), name: "name".into() }
}

fn mistake(text: &str) -> String {
    Keyring::parse(text).unwrap_err().to_string()
}

#[tokio::test]
async fn unwraps_what_it_wrapped_with_every_provider() {
    let sixteen = "AAECAwQFBgcICQoLDA0ODw==";
    let twenty_four = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";
    let aes = |kind: &'static str| [KEY1, sixteen, twenty_four].map(|secret| (kind, secret));
    for (kind, secret) in [&aes("aesgcm")[..], &aes("aescbc"), &[("secretbox", KEY1)]].concat() {
        let keyring = mk_keyring(&mk_provider(kind, "k", secret));
        let data_key = DataKey::random().unwrap();
        let wrapped = keyring.wrap(&mk_key(), PATH, &data_key).await.unwrap();
        assert!(wrapped.starts_with(format!("k8s:enc:{kind}:v1:k:").as_bytes()));
        let opened = keyring.unwrap(&mk_key(), PATH, &wrapped).await.unwrap();
        assert_eq!(opened.key.bytes(), data_key.bytes());
        assert!(!opened.stale);
        for at in 0..wrapped.len() {
            let mut bad = wrapped.to_vec();
            bad[at] ^= 4;
            assert!(keyring.unwrap(&mk_key(), PATH, &bad).await.is_err(), "{kind} byte {at}");
        }
    }
}

#[tokio::test]
async fn binds_a_wrapped_key_to_its_path_with_every_provider() {
    for kind in ["aesgcm", "secretbox", "aescbc"] {
        let keyring = mk_keyring(&mk_provider(kind, "k", KEY1));
        let wrapped = keyring.wrap(&mk_key(), PATH, &DataKey::random().unwrap()).await.unwrap();
        assert!(keyring.unwrap(&mk_key(), PATH, &wrapped).await.is_ok(), "{kind}");
        let moved = keyring.unwrap(&mk_key(), b"/registry/g/r/ns/other", &wrapped).await;
        assert_eq!(moved.err(), Some(Error::Altered), "{kind}");
    }
}

/// A nonce that comes again gives away what it seals.
#[tokio::test]
async fn wraps_otherwise_each_time() {
    for kind in ["aesgcm", "secretbox", "aescbc"] {
        let keyring = mk_keyring(&mk_provider(kind, "k", KEY1));
        let data_key = DataKey::random().unwrap();
        let mut nonces = std::collections::HashSet::new();
        for _ in 0..200 {
            let wrapped = keyring.wrap(&mk_key(), PATH, &data_key).await.unwrap();
            let sealed = wrapped.slice(format!("k8s:enc:{kind}:v1:k:").len()..);
            assert!(nonces.insert(sealed.slice(..12)), "{kind}");
        }
    }
}

#[tokio::test]
async fn counts_what_each_key_wraps() {
    let (one, two) = (mk_provider("aesgcm", "one", KEY1), mk_provider("secretbox", "two", KEY2));
    let keyring = mk_keyring(&format!("{one}, {two}"));
    for _ in 0..3 {
        keyring.wrap(&mk_key(), PATH, &DataKey::random().unwrap()).await.unwrap();
    }
    let counted = |provider: &str, key: &str| keyring.metrics.wraps(provider, key).get();
    assert_eq!((counted("aesgcm", "one"), counted("secretbox", "two")), (3, 0));
    // Also the same key of a configuration that was read again.
    let again = mk_config(&format!("- resources: ['*.*']\n  providers: [{one}]\n"));
    keyring.replace(config::parse(&again, Duration::from_secs(1), &keyring.metrics).unwrap());
    keyring.wrap(&mk_key(), PATH, &DataKey::random().unwrap()).await.unwrap();
    assert_eq!(counted("aesgcm", "one"), 4);
    let names: Vec<_> =
        keyring.collectors().iter().flat_map(|it| it.collect()).map(|it| it.name().to_owned()).collect();
    assert!(names.iter().any(|name| name == "repot_encryption_key_wraps_total"), "{names:?}");
}

#[tokio::test]
async fn keeps_a_wrapped_key_only_where_the_same_key_wraps_now() {
    let (one, two) = (mk_provider("aesgcm", "one", KEY1), mk_provider("secretbox", "two", KEY2));
    let before = mk_keyring(&format!("{one}, {two}"));
    let wrapped = before.wrap(&mk_key(), PATH, &DataKey::random().unwrap()).await.unwrap();
    assert_eq!(before.keeps(&mk_key(), &wrapped), Ok(true));
    assert_eq!(mk_keyring(&format!("{two}, {one}")).keeps(&mk_key(), &wrapped), Ok(false));
    assert_eq!(mk_keyring(&format!("{{identity: {{}}}}, {one}")).keeps(&mk_key(), &wrapped), Ok(false));
    assert_eq!(before.keeps(&mk_key(), &[7; 32]), Ok(false), "what rests in clear");
}

#[tokio::test]
async fn a_resource_named_by_two_entries_has_the_providers_of_both() {
    let entry = |provider: &str| format!("- resources: [r.g]\n  providers: [{provider}]\n");
    let (one, two) = (mk_provider("aesgcm", "one", KEY1), mk_provider("secretbox", "two", KEY2));
    let wrapped = mk_keyring(&two).wrap(&mk_key(), PATH, &DataKey::random().unwrap()).await.unwrap();
    let both = Keyring::parse(&mk_config(&(entry(&one) + &entry(&two)))).unwrap();
    assert!(both.unwrap(&mk_key(), PATH, &wrapped).await.unwrap().stale);
}

#[tokio::test]
async fn reads_with_every_key_and_marks_all_but_the_first_stale() {
    let old = mk_keyring(&mk_provider("aesgcm", "old", KEY1));
    let wrapped = old.wrap(&mk_key(), PATH, &DataKey::random().unwrap()).await.unwrap();
    let two = format!("{}, {}", mk_provider("secretbox", "new", KEY2), mk_provider("aesgcm", "old", KEY1));
    assert!(mk_keyring(&two).unwrap(&mk_key(), PATH, &wrapped).await.unwrap().stale);
    let both =
        format!("{{aesgcm: {{keys: [{{name: new, secret: {KEY2}}}, {{name: old, secret: {KEY1}}}]}}}}");
    assert!(mk_keyring(&both).unwrap(&mk_key(), PATH, &wrapped).await.unwrap().stale);
    let gone = mk_keyring(&mk_provider("aesgcm", "new", KEY2));
    assert_eq!(gone.unwrap(&mk_key(), PATH, &wrapped).await.err(), Some(Error::NoKey));
    let changed = mk_keyring(&mk_provider("aesgcm", "old", KEY2));
    assert_eq!(changed.unwrap(&mk_key(), PATH, &wrapped).await.err(), Some(Error::WrongKey));
    // What is written since opens, and says nothing about what was written before.
    let newer = changed.wrap(&mk_key(), PATH, &DataKey::random().unwrap()).await.unwrap();
    assert!(changed.unwrap(&mk_key(), PATH, &newer).await.is_ok());
    assert_eq!(changed.unwrap(&mk_key(), PATH, &wrapped).await.err(), Some(Error::WrongKey));
}

#[tokio::test]
async fn leaves_keys_bare_only_where_identity_is_written_first() {
    let keyring = mk_keyring("{identity: {}}");
    let key = DataKey::random().unwrap();
    assert_eq!(&keyring.wrap(&mk_key(), PATH, &key).await.unwrap()[..], key.bytes());
    let wrapped = mk_keyring(&mk_provider("aesgcm", "k", KEY1)).wrap(&mk_key(), PATH, &key).await.unwrap();
    assert_eq!(keyring.unwrap(&mk_key(), PATH, &wrapped).await.err(), Some(Error::NoKey));
    let later = mk_keyring(&format!("{}, {{identity: {{}}}}", mk_provider("aesgcm", "k", KEY1)));
    assert!(later.unwrap(&mk_key(), PATH, key.bytes()).await.unwrap().stale);
    assert!(!later.unwrap(&mk_key(), PATH, &wrapped).await.unwrap().stale);
}

#[tokio::test]
async fn takes_the_first_entry_that_covers_and_refuses_to_go_without() {
    let entry = |resources: &str, name: &str| {
        format!("- resources: {resources}\n  providers: [{}]\n", mk_provider("aesgcm", name, KEY1))
    };
    let entries = entry("[r.g]", "one") + &entry("['*.g', '*.']", "two");
    let keyring = Keyring::parse(&mk_config(&entries)).unwrap();
    let wrapped_by = async |group: &str, resource: &str| {
        let key = Key { group: group.into(), resource: resource.into(), ..mk_key() };
        let wrapped = keyring.wrap(&key, PATH, &DataKey::random().unwrap()).await?;
        Ok(String::from_utf8_lossy(&wrapped[18..21]).into_owned())
    };
    assert_eq!(wrapped_by("g", "r").await, Ok("one".into()));
    assert_eq!(wrapped_by("g", "other").await, Ok("two".into()));
    assert_eq!(wrapped_by("", "secrets").await, Ok("two".into()));
    assert_eq!(wrapped_by("h", "r").await, Err(Error::Uncovered("r.h".into())));
}

#[test]
fn says_what_is_wrong_and_where_and_never_the_secret() {
    let good = mk_provider("aesgcm", "k", KEY1);
    let with = |resources: &str, providers: &str| {
        mk_config(&format!("- resources: {resources}\n  providers: {providers}\n"))
    };
    let kms = |settings: &str| with("['*.*']", &format!("[{{kms: {{{settings}}}}}]"));
    let provider = "resources[0].providers[0]";
    let table = [
        (String::new(), "file", "is empty"),
        ("a: [".into(), "file", "not valid YAML"),
        ("kind: x\nkind: y".into(), "file", "given twice at line 2"),
        ("apiVersion: v1".into(), "apiVersion", "must be apiserver.config.k8s.io/v1"),
        (mk_config("  []"), "resources", "must not be empty"),
        (mk_config("  []").replace("kind", "kinds"), "kind", "is missing"),
        (format!("{}extra: 1\n", with("['*.*']", &format!("[{good}]"))), "file", "unknown field \"extra\""),
        (with("[]", &format!("[{good}]")), "resources[0].resources", "must not be empty"),
        (with("['*']", &format!("[{good}]")), "resources[0].resources[0]", "\"*.*\""),
        (with("[Pods]", &format!("[{good}]")), "resources[0].resources[0]", "write \"pods\""),
        (with("['*.*', a.b]", &format!("[{good}]")), "resources[0].resources[1]", "overlaps"),
        (with("['*.*']", "[]"), "resources[0].providers", "must not be empty"),
        (with("['*.*']", "[{aesgcm: {}, identity: {}}]"), provider, "exactly one"),
        (with("['*.*']", "[{identity: }]"), "resources[0].providers[0].identity", "write identity: {}"),
        (with("[a.events.k8s.io]", &format!("[{good}]")), "resources[0].resources[0]", "events"),
        (with("[a.extensions]", &format!("[{good}]")), "resources[0].resources[0]", "gone"),
        (with("[apiserveripinfo]", &format!("[{good}]")), "resources[0].resources[0]", "no API"),
        (with("['*.*']", "[{kms: {}}]"), "resources[0].providers[0].kms", "version 1"),
        (kms("apiVersion: v1"), "providers[0].kms.apiVersion", "use apiVersion: v2"),
        (kms("apiVersion: v3"), "providers[0].kms", "must be v2"),
        (kms("apiVersion: v2, endpoint: unix:///s"), "providers[0].kms.name", "is missing"),
        (kms("apiVersion: v2, name: main"), "providers[0].kms.endpoint", "is missing"),
        (kms("apiVersion: v2, name: 'a:b', endpoint: unix:///s"), "providers[0].kms.name", "colon"),
        (kms("apiVersion: v2, name: main, endpoint: 'tcp://s'"), "providers[0].kms.endpoint", "unix://"),
        (kms("apiVersion: v2, name: main, endpoint: 'unix://s'"), "providers[0].kms.endpoint", "absolute"),
        (kms("apiVersion: v2, name: main, endpoint: unix:///s, timeout: 0s"), "kms.timeout", "longer than"),
        (
            kms("apiVersion: v2, name: main, endpoint: unix:///s, timeout: 3"),
            "kms.timeout",
            "must be a string",
        ),
        (
            kms("apiVersion: v2, name: main, endpoint: unix:///s, cachesize: 9"),
            "kms.cachesize",
            "not a setting",
        ),
        (kms("apiVersion: v2, name: main, endpoint: unix:///s, extra: x"), "kms", "unknown field \"extra\""),
        (
            with(
                "['*.*']",
                &format!(
                    "[{{kms: {n}}}, {{kms: {n}}}]",
                    n = "{apiVersion: v2, name: main, endpoint: unix:///s}"
                ),
            ),
            "providers[1].kms.name",
            "earlier kms provider",
        ),
        (with("['*.*']", "[{rot13: {}}]"), provider, "known: aesgcm"),
        (with("['*.*']", "[{aesgcm: {keys: []}}]"), "providers[0].aesgcm.keys", "must not be empty"),
        (with("['*.*']", &format!("[{{aesgcm: {{keys: [{KEY1}]}}}}]")), "aesgcm.keys[0]", "must be a map"),
        (with("['*.*']", &format!("[{{aesgcm: {{keys: {{{KEY1}: x}}}}}}]")), "aesgcm.keys", "must be a list"),
        (with("['*.*']", &format!("[{{aesgcm: {{{KEY1}: x, keys: []}}}}]")), "aesgcm", "(not shown)"),
        (
            with("['*.*']", &format!("[{}]", mk_provider("aesgcm", "k", "c2hvcnQ="))),
            "keys[0].secret",
            "16, 24 or 32 bytes, has 5",
        ),
        (with("['*.*']", &format!("[{}]", good.replace(KEY1, &KEY1[1..]))), "keys[0].secret", "base64"),
        (
            with("['*.*']", &format!("[{}]", mk_provider("secretbox", "k", "AAECAwQFBgcICQoLDA0ODw=="))),
            "secretbox.keys[0].secret",
            "32 bytes, has 16",
        ),
        (with("['*.*']", &format!("[{}]", mk_provider("aesgcm", "'a:b'", KEY1))), "keys[0].name", "colon"),
        (
            with("['*.*']", &format!("[{good}]")) + "- resources: [a.b]\n  providers: [{identity: {}}]\n",
            "resources[1].resources[0]",
            "has no effect",
        ),
    ];
    for (text, at, what) in table {
        let message = mistake(&text);
        assert!(message.contains(at) && message.contains(what), "{text}\n-> {message}");
        assert!(!message.contains(&KEY1[4..20]), "leaks: {message}");
    }
}

#[test]
fn shows_no_key() {
    let keyring = mk_keyring(&mk_provider("aesgcm", "k", KEY1));
    assert_eq!(format!("{keyring:?}"), "Keyring { entries: 1, .. }");
}

#[tokio::test]
async fn makes_a_private_file_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("encryption.yaml");
    assert!(Keyring::ensure_file(&path).unwrap());
    let first = std::fs::read(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!Keyring::ensure_file(&path).unwrap());
    assert_eq!(std::fs::read(&path).unwrap(), first);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    let keyring = Keyring::from_file(&path).unwrap();
    keyring.wrap(&mk_key(), PATH, &DataKey::random().unwrap()).await.unwrap();
    let missing = Keyring::from_file(&dir.path().join("none")).unwrap_err().to_string();
    assert!(missing.contains("none: cannot be read"), "{missing}");
}
