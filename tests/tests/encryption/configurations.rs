//! Which configurations are accepted: judged by the code of kube-apiserver beside ours.

use anyhow::{Result, ensure};
use repot_storage::Keyring;
use repot_tests::encryption::Upstream;
use repot_tests::run;

const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n";
const K16: &str = "AAECAwQFBgcICQoLDA0ODw==";
const K24: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";
const K32: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const KMS: &str = "apiVersion: v2, endpoint: 'unix:///nowhere/kms.sock', timeout: 10ms";

/// Which of the two accept.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Acceptors {
    Both,
    Neither,
    /// Ours is stricter, for a reason that stands beside the case.
    OnlyUpstream,
}

fn entry(resources: &str, providers: &str) -> String {
    format!("- resources: {resources}\n  providers: {providers}\n")
}

fn entries(entries: &[(&str, &str)]) -> String {
    let text: String = entries.iter().map(|(resources, providers)| entry(resources, providers)).collect();
    format!("{HEAD}resources:\n{text}")
}

fn keys(kind: &str, secret: &str) -> String {
    format!("[{{{kind}: {{keys: [{{name: key, secret: '{secret}'}}]}}}}]")
}

fn of_providers() -> Vec<(Acceptors, String)> {
    use Acceptors::{Both, Neither, OnlyUpstream};
    let one = |providers: &str| entries(&[("['*.*']", providers)]);
    let kms = |settings: &str| one(&format!("[{{kms: {{{settings}}}}}]"));
    vec![
        (Both, one(&keys("aesgcm", K16))),
        (Both, one(&keys("aesgcm", K24))),
        (Both, one(&keys("aesgcm", K32))),
        (Both, one(&keys("aescbc", K16))),
        (Both, one(&keys("aescbc", K32))),
        (Both, one(&keys("secretbox", K32))),
        (Neither, one(&keys("secretbox", K16))),
        (Neither, one(&keys("aesgcm", "AAEC"))),
        (Neither, one(&keys("aesgcm", "no base64!"))),
        (Neither, one(&keys("aesgcm", ""))),
        (Neither, one("[{aesgcm: {keys: []}}]")),
        (Neither, one("[{aesgcm: {keys: [{secret: x}]}}]")),
        (Neither, one("[{aesgcm: {keys: [{name: key}]}}]")),
        (Neither, one("[{aesgcm: {}, identity: {}}]")),
        (Neither, one("[{}]")),
        (Neither, one("[]")),
        (Neither, one("[{unheard: {}}]")),
        (Both, one("[{identity: {}}]")),
        (Neither, one("[{identity: }]")),
        (Neither, one("[{identity: {extra: x}}]")),
        (Both, kms(&format!("name: main, {KMS}"))),
        (Both, one(&format!("[{{kms: {{name: one, {KMS}}}}}, {{kms: {{name: two, {KMS}}}}}]"))),
        (Neither, one(&format!("[{{kms: {{name: one, {KMS}}}}}, {{kms: {{name: one, {KMS}}}}}]"))),
        (Neither, kms(KMS)),
        (Neither, kms(&format!("name: 'a:b', {KMS}"))),
        (Neither, kms(&format!("name: main, cachesize: 10, {KMS}"))),
        (Neither, kms("name: main, apiVersion: v1, endpoint: 'unix:///nowhere/kms.sock'")),
        (Neither, kms("name: main, endpoint: 'unix:///nowhere/kms.sock'")),
        (Neither, kms("name: main, apiVersion: v3, endpoint: 'unix:///nowhere/kms.sock'")),
        (Neither, kms("name: main, apiVersion: v2")),
        (Neither, kms("name: main, apiVersion: v2, endpoint: 'tcp://localhost:1'")),
        (Neither, kms("name: main, apiVersion: v2, endpoint: 'unix:///nowhere/kms.sock', timeout: 0s")),
        (Neither, kms("name: main, apiVersion: v2, endpoint: 'unix:///nowhere/kms.sock', timeout: soon")),
        (Neither, kms(&format!("name: main, extra: x, {KMS}"))),
        (Both, kms("name: main, apiVersion: v2, endpoint: 'unix:///@abstract', timeout: 10ms")),
        // A host of a unix socket means nothing: the path would be another than the one that was written.
        (OnlyUpstream, kms("name: main, apiVersion: v2, endpoint: 'unix://nowhere/kms.sock', timeout: 10ms")),
        // A name with a colon would end the prefix early; the second of two equal names could never read.
        (OnlyUpstream, one(&keys("aesgcm", K32).replace("name: key", "name: 'a:b'"))),
        (
            OnlyUpstream,
            one(&format!(
                "[{{aesgcm: {{keys: [{{name: key, secret: {K32}}}, {{name: key, secret: {K16}}}]}}}}]"
            )),
        ),
    ]
}

fn of_resources() -> Vec<(Acceptors, String)> {
    use Acceptors::{Both, Neither, OnlyUpstream};
    let good = &keys("aesgcm", K32);
    let one = |resources: &str| entries(&[(resources, good)]);
    let two = |first: &str, second: &str| entries(&[(first, good), (second, good)]);
    vec![
        (Both, one("[shootstates.core.gardener.cloud]")),
        (Both, one("[secrets, '*.apps']")),
        (Both, one("['*.']")),
        (Neither, one("[]")),
        (Neither, one("['*']")),
        (Neither, one("[Secrets]")),
        (Neither, one("[secrets, secrets]")),
        (Neither, one("[secrets, '*.']")),
        (Neither, one("['*.', secrets]")),
        (Neither, one("['*.*', secrets]")),
        (Neither, one("[secrets, '*.*']")),
        (Neither, one("['secrets.*']")),
        (Neither, one("[events.events.k8s.io]")),
        (Neither, one("[ingresses.extensions]")),
        (Neither, one("[apiserveripinfo]")),
        (Both, two("[secrets]", "['*.']")),
        (Both, two("[secrets]", "[secrets]")),
        (Both, two("[secrets]", "['*.*']")),
        (Both, two("['*.apps']", "['*.*']")),
        (Neither, two("['*.']", "[secrets]")),
        (Neither, two("['*.*']", "[secrets]")),
        (Neither, two("['*.*']", "['*.apps']")),
        (Neither, two("['*.*']", "['*.*']")),
        // Patterns that match nothing are mistakes.
        (OnlyUpstream, one("['sec*']")),
        (OnlyUpstream, one("['']")),
        (OnlyUpstream, one("[pods/status]")),
    ]
}

fn of_files() -> Vec<(Acceptors, String)> {
    use Acceptors::{Both, Neither};
    let good = entries(&[("['*.*']", &keys("aesgcm", K32))]);
    let json = format!(
        r#"{{"apiVersion":"apiserver.config.k8s.io/v1","kind":"EncryptionConfiguration","resources":
        [{{"resources":["*.*"],"providers":[{{"secretbox":{{"keys":[{{"name":"a","secret":"{K32}"}}]}}}}]}}]}}"#
    );
    vec![
        (Both, good.clone()),
        (Both, json.clone()),
        (Neither, String::new()),
        (Neither, "nonsense".to_owned()),
        (Neither, format!("{HEAD}resources: []\n")),
        (Neither, HEAD.to_owned()),
        (Neither, good.replace("/v1", "/v2")),
        (Neither, good.replace("kind: Enc", "kind: Other")),
        (Neither, format!("{good}extra: x\n")),
        (Neither, good.replace("  providers", "  extra: x\n  providers")),
        (Neither, good.replace("secret:", "extra: x, secret:")),
        (Neither, format!("{good}kind: EncryptionConfiguration\n")),
        (Neither, good.replace("name: key", "name: key, name: key")),
        (Neither, json.replace("\"name\"", "\"Name\"")),
    ]
}

#[test]
fn accepts_and_refuses_what_kube_apiserver_does() {
    run(async |env| -> Result<()> {
        let mut upstream = Upstream::start(env).await?;
        let file = env.path().join("judged.yaml");
        let cases = [of_providers(), of_resources(), of_files()].concat();
        let mut wrong = Vec::new();
        for (expected, text) in &cases {
            std::fs::write(&file, text)?;
            let theirs = upstream.check(&file).await?;
            let ours = Keyring::parse(text).map(drop);
            let who = match (&ours, &theirs) {
                (Ok(()), Ok(())) => Some(Acceptors::Both),
                (Err(_), Err(_)) => Some(Acceptors::Neither),
                (Err(_), Ok(())) => Some(Acceptors::OnlyUpstream),
                (Ok(()), Err(_)) => None,
            };
            if who != Some(*expected) {
                wrong.push(format!("{text}\nexpected {expected:?}; ours {ours:?}, theirs {theirs:?}"));
            }
        }
        ensure!(wrong.is_empty(), "{}", wrong.join("\n\n"));
        Ok(())
    });
}
