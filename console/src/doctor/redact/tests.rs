//! Secrets in many disguises, and texts that have none.

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{object, text};

/// Base64 that stands for the body of a key: no key is in this file.
fn body(length: usize) -> String {
    let bytes: Vec<u8> =
        (0..length).map(|at| u8::try_from((at * 37 + at / 7 * 91 + 13) % 251).unwrap_or(0)).collect();
    STANDARD.encode(bytes)
}

fn wrapped(text: &str, width: usize, prefix: &str, end: &str) -> String {
    let lines: Vec<&str> =
        text.as_bytes().chunks(width).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    lines.iter().map(|line| format!("{prefix}{line}{end}")).collect()
}

fn pem(label: &str) -> String {
    format!("-----BEGIN {label}-----\n{}-----END {label}-----\n", wrapped(&body(300), 64, "", "\n"))
}

/// No 16 characters in a row of the secret are left.
fn assert_gone(redacted: &str, secret: &str) {
    let compact: String = redacted.chars().filter(|c| !c.is_whitespace()).collect();
    for window in secret.as_bytes().windows(16) {
        let part = std::str::from_utf8(window).expect("ASCII");
        assert!(!compact.contains(part), "{part} is left in\n{redacted}");
    }
}

#[test]
fn private_keys_go_in_every_form() {
    for label in [
        "PRIVATE KEY",
        "RSA PRIVATE KEY",
        "EC PRIVATE KEY",
        "ENCRYPTED PRIVATE KEY",
        "OPENSSH PRIVATE KEY",
        "PGP PRIVATE KEY BLOCK",
    ] {
        let key = pem(label);
        assert_eq!(text(&format!("before\n{key}after")), "before\n[REDACTED private key]\nafter", "{label}");
        let escaped = key.replace('\n', "\\n");
        assert_eq!(
            text(&format!("{{\"k\":\"{escaped}\"}}")),
            "{\"k\":\"[REDACTED private key]\\n\"}",
            "{label}"
        );
    }
}

#[test]
fn keys_that_are_cut_off_or_split_over_lines_of_a_log_go() {
    let secret = body(300);
    let lines = wrapped(&secret, 64, "2026-11-29T08:00:00Z INFO ", "\n");
    let narrow = wrapped(&secret, 24, "  ", "\n");
    for (what, log) in [
        ("a log", format!("x -----BEGIN RSA PRIVATE KEY-----\n{lines}2026 -----END RSA PRIVATE KEY-----\n")),
        ("without its end", format!("x\n-----BEGIN PRIVATE KEY-----\n{lines}")),
        ("without its begin", format!("{lines}-----END PRIVATE KEY-----\nmore")),
        // Of a last line that is shorter than any key nobody can tell what it is.
        ("without both", lines[..lines.len() - 45].to_owned()),
        ("narrow lines", format!("k: |\n{narrow}next: 1\n")),
        ("split marker", format!("-----BEGIN PRIV\nATE KEY-----\n{narrow}-----END PRI\nVATE KEY-----\n")),
        ("lower case", format!("-----begin private key-----\n{narrow}-----end private key-----\n")),
        ("windows", format!("-----BEGIN PRIVATE KEY-----\r\n{}", wrapped(&secret, 64, "", "\r\n"))),
    ] {
        println!("{what}");
        assert_gone(&text(&log), &secret);
    }
}

#[test]
fn second_key_does_not_hide_behind_the_first() {
    let keys = format!("{}words{}", pem("PRIVATE KEY"), pem("RSA PRIVATE KEY"));
    assert_eq!(text(&keys), "[REDACTED private key]\nwords[REDACTED private key]\n");
}

#[test]
fn base64_of_keys_and_files_goes() {
    let inner = pem("PRIVATE KEY");
    for secret in [
        STANDARD.encode(&inner),
        URL_SAFE_NO_PAD.encode(&inner),
        STANDARD.encode(STANDARD.encode(&inner)),
        STANDARD.encode("apiVersion: v1\nkind: Config\nusers: [{user: {token: abc}}]\n"),
    ] {
        assert_gone(&text(&format!("tls.key: {secret}")), &secret);
        assert_gone(&text(&format!("read {secret}, going on")), &secret);
        assert_gone(&text(&format!("data\n{}end", wrapped(&secret, 40, "", "\n"))), &secret);
        assert_gone(&text(&format!("data\\n{}end", wrapped(&secret, 40, "", "\\n"))), &secret);
    }
}

#[test]
fn tokens_and_headers_go() {
    let jwt = format!(
        "eyJhbGciOiJIUzI1NiJ9.{}.{}",
        URL_SAFE_NO_PAD.encode(body(60)),
        URL_SAFE_NO_PAD.encode(body(32))
    );
    for line in [
        format!("token is {jwt} now"),
        format!("Authorization: Bearer {jwt}"),
        format!("{{\"authorization\":[\"Bearer {jwt}\"]}}"),
        format!("curl -H \\\"Authorization: Bearer {jwt}\\\""),
        jwt.replace('.', " . "),
        jwt.replace('.', "\n."),
    ] {
        assert_gone(&text(&line), &jwt);
    }
    for (line, secret) in [
        ("Authorization: Bearer s3cr3t", "s3cr3t"),
        ("header Authorization:[Basic dXNlcjpwYXNz]", "dXNlcjpwYXNz"),
        ("Cookie: session=abcdef", "abcdef"),
        ("bearer%20s3cr3t", "s3cr3t"),
        ("kubeadm join --token abcdef.0123456789abcdef", "0123456789abcdef"),
    ] {
        assert!(!text(line).contains(secret), "{} in {line}", text(line));
    }
}

#[test]
fn credentials_of_clouds_go() {
    // Made up, in the form of real ones.
    let (id, key) = (["AKIA", "QWERTYUIOPASDFGH"].concat(), "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzzzzzzzz");
    for line in [
        format!("AWS_ACCESS_KEY_ID={id} AWS_SECRET_ACCESS_KEY={key}"),
        format!("aws_access_key_id = {id}\naws_secret_access_key = {key}"),
        format!("{{\"accessKeyID\":\"{id}\",\"secretAccessKey\":\"{key}\"}}"),
        format!("using {id}, then {key}."),
        format!("x{id}x{key}"),
    ] {
        let redacted = text(&line);
        assert!(!redacted.contains(&id), "{redacted}");
        assert_gone(&redacted, key);
    }
    let azure = STANDARD.encode([7_u8, 200, 31, 94].repeat(16));
    assert_gone(&text(&format!("AccountKey={azure};EndpointSuffix=core")), &azure);
    assert!(!text("https://a.blob.example/c?sv=2024-01-01&sig=abc%2Fdef").contains("abc%2F"));
    assert!(!text("https://b.example/o?X-Amz-Credential=AK&X-Amz-Signature=feed").contains("feed"));
}

#[test]
fn passwords_go_from_urls_and_from_behind_telling_names() {
    for (line, secret) in [
        ("GET https://user:hunter2@host/path", "hunter2"),
        ("https://t0ken@host", "t0ken"),
        ("postgres://u:p/hunter2@db:5432/x", "hunter2"),
        ("postgres://app:p@hunter2@db/x", "hunter2"),
        ("postgres://app:p@hun/hunter2@db/x", "hunter2"),
        ("redis://p@hunter2@db/x", "hunter2"),
        ("password: hunter2", "hunter2"),
        ("password=\"two hunter2\"", "hunter2"),
        ("{\"password\":\"a\\\"hunter2\"}", "hunter2"),
        ("{\\\"clientSecret\\\":\\\"hunter2\\\"}", "hunter2"),
        ("DB_PASSWORD='hunter2'", "hunter2"),
        ("password: |\n  hunter2\n  more\nnext: x", "hunter2"),
        ("--etcd-password hunter2", "hunter2"),
        ("--password=hunter2", "hunter2"),
        ("passphrase => hunter2", "hunter2"),
        ("api-key: hunter2", "hunter2"),
    ] {
        let redacted = text(line);
        assert!(!redacted.contains(secret), "{redacted}");
    }
    assert!(text("password: |\n  hunter2\nnext: x").contains("next: x"));
    assert_eq!(text("GET https://user:hunter2@host/path"), "GET https://[REDACTED]@host/path");
}

#[test]
fn what_maintainers_need_stays() {
    for line in [
        "ControlPlaneMigration garden-dev/alpha-to-b: step ApiDnsSwitched of the destination runs for 16s",
        "2026-11-29T08:00:00.123456Z INFO repot_controllers::migration: reconcile failed, requeueing error=\"no quorum\"",
        "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
        "shoot--dev--alpha/etcd-main-0 uid=3f2a9c1e-7b7e-4c63-9a55-0d7f0a3e9b11 revision 812",
        "GET https://10.0.0.1:6443/apis/migration.gardener.cloud/v1alpha1/namespaces/garden-dev/controlplanemigrations 200",
        "Get https://node-0:10250/containerLogs/repot-system/repot-apiserver-0/apiserver?tailLines=20000",
        "secretRef s of HostedEtcd main; secretName: etcd-backup",
        "SourceControllersStopped DestinationKubeAPIServerReady EtcdMigrationComplete SeedSystemComponentsHealthy",
    ] {
        assert_eq!(text(line), line);
    }
}

#[test]
fn objects_lose_secrets_and_keep_their_shape() {
    let key = pem("EC PRIVATE KEY");
    let mut pod = json!({
        "kind": "Pod",
        "metadata": {
            "name": "p", "managedFields": [{"manager": "x"}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": key, "kept": "yes"},
        },
        "spec": {
            "automountServiceAccountToken": false,
            "volumes": [{"secret": {"secretName": "tls"}}],
            "containers": [{
                "args": ["--token", "hunter2", "--leader-elect", "--password=hunter2", "--namespace", "x"],
                "env": [
                    {"name": "AWS_SECRET_ACCESS_KEY", "value": "hunter2"}, {"name": "POD_NAME", "value": "kept"},
                    {"name": "DB_PASSWORD", "valueFrom": {"secretKeyRef": {"name": "db", "key": "password"}}},
                ],
            }],
        },
        "list": {"items": [{"kind": "Secret", "data": {"a": "aHVudGVyMg=="}, "stringData": {"b": "hunter2"}}]},
        "status": {"token": "hunter2", "passwords": ["x"], "password": ["hunter2", {"a": "b"}], "pin": 7},
    });
    object(&mut pod);
    let written = pod.to_string();
    for gone in ["hunter2", "aHVudGVyMg", "managedFields", "last-applied", "PRIVATE KEY-----"] {
        assert!(!written.contains(gone), "{gone} in {written}");
    }
    assert_eq!(pod["spec"]["volumes"], json!([{"secret": {"secretName": "tls"}}]));
    assert_eq!(pod["spec"]["automountServiceAccountToken"], json!(false));
    assert_eq!(pod["spec"]["containers"][0]["env"][2]["valueFrom"]["secretKeyRef"]["name"], "db");
    assert_eq!(pod["spec"]["containers"][0]["args"][2], "--leader-elect");
    assert_eq!(pod["spec"]["containers"][0]["args"][5], "x");
    assert_eq!(pod["metadata"]["annotations"]["kept"], "yes");
    assert_eq!(pod["status"]["pin"], 7);
}

#[test]
fn bundles_of_authorities_become_a_summary() {
    let authority = crate::doctor::tests_authority();
    let encoded = STANDARD.encode(authority.certificate_pem());
    // Somebody may have put a key beside the certificate.
    let both = STANDARD.encode(format!("{}{}", authority.certificate_pem(), authority.key_pem()));
    for bundle in [&encoded, &both] {
        let mut webhook = json!({"clientConfig": {"caBundle": bundle}});
        object(&mut webhook);
        let summary = webhook["clientConfig"]["caBundle"].as_str().expect("a text").to_owned();
        assert!(summary.starts_with("1 certificates, valid until 20"), "{summary}");
    }
}

#[test]
fn deep_objects_end() {
    let mut deep = json!("secret");
    for _ in 0..120 {
        deep = json!([deep]);
    }
    object(&mut deep);
    assert!(!deep.to_string().contains("secret"));
}

#[test]
fn long_texts_take_no_long_time() {
    let started = std::time::Instant::now();
    for piece in
        ["-----BEGIN PRIVATE KEY-----\n", "password=", "eyJ", "aB3+", "https://a:", "aB3aB3aB3aB3aB3aB3 "]
    {
        let long = piece.repeat((1 << 20) / piece.len());
        let _ = text(&long);
    }
    assert!(started.elapsed().as_secs() < 120, "{:?}", started.elapsed());
}

/// A secret with what has to be gone of it.
fn secrets() -> impl Strategy<Value = (String, String)> {
    let key = "[A-Za-z0-9+/]{64,200}".prop_filter("mixed", |key| {
        let classes = [char::is_ascii_uppercase, char::is_ascii_lowercase, char::is_ascii_digit];
        classes.iter().all(|is_in| key.chars().any(|c| is_in(&c)))
    });
    let word = "[a-z0-9]{12,30}";
    prop_oneof![
        (key.clone(), 20_usize..80).prop_map(|(key, width)| {
            (
                format!(
                    "-----BEGIN PRIVATE KEY-----\n{}-----END PRIVATE KEY-----",
                    wrapped(&key, width, "", "\n")
                ),
                key,
            )
        }),
        (key.clone(), 20_usize..80).prop_map(|(key, width)| (
            format!("-----BEGIN RSA PRIVATE KEY-----\n{}", wrapped(&key, width, "", "\n")),
            key
        )),
        key.clone().prop_map(|key| (key.clone(), key)),
        key.prop_map(|key| {
            let encoded =
                STANDARD.encode(format!("-----BEGIN PRIVATE KEY-----\n{key}\n-----END PRIVATE KEY-----\n"));
            (encoded.clone(), encoded)
        }),
        word.prop_map(|word| (format!("password={word}"), word)),
        word.prop_map(|word| (format!("{{\"token\": \"{word}\"}}"), word)),
        word.prop_map(|word| (format!("Authorization: Bearer {word}"), word)),
        word.prop_map(|word| (format!("https://user:{word}@host/"), word)),
        word.prop_map(|word| (format!("--client-secret {word}"), word)),
        "[A-Z0-9]{16}".prop_map(|id| (format!("AKIA{id}"), id)),
        ("[A-Za-z0-9_-]{20,40}", "[A-Za-z0-9_-]{20,40}").prop_map(|(a, b)| (format!("eyJ{a}.{b}.sig"), a)),
    ]
}

proptest! {
    #[test]
    fn no_secret_survives_in_any_text(before in "[ -~\\n]{0,60}[ \\n]", (secret, core) in secrets(), after in "[ \\n][ -~\\n]{0,60}") {
        let redacted = text(&format!("{before}{secret}{after}"));
        let compact: String = redacted.chars().filter(|c| !c.is_whitespace()).collect();
        let shortest = core.len().min(16);
        for window in core.as_bytes().windows(shortest) {
            let part = std::str::from_utf8(window).expect("ASCII");
            prop_assert!(!compact.contains(part) || before.contains(part) || after.contains(part), "{part} is left in {redacted:?}");
        }
    }

    #[test]
    fn second_pass_changes_nothing(any in "\\PC{0,200}", (secret, _) in secrets()) {
        let once = text(&format!("{any}\n{secret}\n{any}"));
        prop_assert_eq!(text(&once), once.clone());
    }

    #[test]
    fn plain_words_stay(words in "([a-z]{1,12} ){0,30}") {
        let is_telling = ["secret", "token", "password", "basic", "bearer"].iter().any(|word| words.contains(word));
        prop_assume!(!is_telling);
        prop_assert_eq!(text(&words), words);
    }

    #[test]
    fn any_object_is_taken(text in "\\PC{0,40}", number in any::<i64>(), (secret, core) in secrets()) {
        let mut value: Value = json!({&text: [{&secret: number}, &secret, {"a": {"b": &secret}}], "name": &text, "value": &secret});
        object(&mut value);
        let written = value.to_string();
        prop_assume!(!text.contains(&core));
        prop_assert!(!written.contains(&core), "{core} is left in {written}");
    }
}
