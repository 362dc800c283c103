//! Bodies that cost much more than their length: deep, wide, repetitive, wrong. Memory and answers stay within their bounds.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use repot_tests::cgroup::MemoryLimit;
use repot_tests::http::{Answer, Api, send};
use repot_tests::repot::Dev;
use repot_tests::{TestEnv, run};
use reqwest::Method;
use serde_json::{Value, json};

use super::memory::{BASE, MIB, peak};
use crate::shootstate::world::{GROUP, VERSION, collection, path, small};

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
/// As long as a body may be.
const LONG: usize = 15_000_000;
const BUDGET: u64 = 192 * MIB;
/// No refusal needs more.
const SHORT: usize = 256 << 10;
const PATIENCE: Duration = Duration::from_secs(300);

/// A request that somebody might send to fill the memory.
struct Hostile {
    what: &'static str,
    method: Method,
    path: String,
    content_type: &'static str,
    body: String,
    /// What it may be answered with, when it is alone.
    codes: &'static [u16],
}

/// A text over and over, with commas between, up to so many bytes.
fn times(text: &str, bytes: usize) -> String {
    vec![text; bytes / (text.len() + 1)].join(",")
}

/// Numbered texts, with commas between, up to so many bytes.
fn numbered(text: impl Fn(usize) -> String, bytes: usize) -> String {
    let mut all = String::with_capacity(bytes + 100);
    for number in 0.. {
        if all.len() >= bytes {
            break;
        }
        if number > 0 {
            all.push(',');
        }
        all.push_str(&text(number));
    }
    all
}

fn object(name: &str, metadata: &str, spec: &str) -> String {
    let comma = if metadata.is_empty() { "" } else { "," };
    format!(
        r#"{{"apiVersion":"{GROUP}/{VERSION}","kind":"ShootState","metadata":{{"name":"{name}"{comma}{metadata}}},"spec":{{{spec}}}}}"#
    )
}

fn create(what: &'static str, metadata: &str, spec: &str, codes: &'static [u16]) -> Hostile {
    let path = collection("default");
    let body = object(&what.replace(' ', "-"), metadata, spec);
    Hostile { what, method: Method::POST, path, content_type: JSON, body, codes }
}

fn patch(what: &'static str, content_type: &'static str, body: String, codes: &'static [u16]) -> Hostile {
    let query = if content_type == APPLY { "?fieldManager=m&force=true" } else { "" };
    Hostile {
        what,
        method: Method::PATCH,
        path: format!("{}{query}", path("target")),
        content_type,
        body,
        codes,
    }
}

/// What refuses a body that costs too much.
const TOO_MUCH: &[u16] = &[413];

fn creations() -> Vec<Hostile> {
    let list = |name: &str, item: &str, bytes| format!(r#""{name}":[{}]"#, times(item, bytes));
    let deep = |depth: usize| {
        format!(r#""extensions":[{{"kind":"W","state":{}{}}}]"#, "[".repeat(depth), "]".repeat(depth))
    };
    let entry = r#"{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:a":{}}}"#;
    let fields = numbered(|n| format!(r#""f:{n}":{{"f:x":{{}}}}"#), 300_000);
    let one_entry = entry.replace(r#"{"f:a":{}}"#, &format!("{{{fields}}}"));
    vec![
        create("empty extensions", "", &list("extensions", "{}", LONG), TOO_MUCH),
        create("arrays for extensions", "", &list("extensions", "[]", LONG), TOO_MUCH),
        create("numbers for extensions", "", &list("extensions", "0", LONG), TOO_MUCH),
        create(
            "extensions that differ",
            "",
            &format!(r#""extensions":[{}]"#, numbered(|n| format!(r#"{{"kind":"{n}"}}"#), LONG)),
            TOO_MUCH,
        ),
        create(
            "fewer that differ",
            "",
            &format!(r#""extensions":[{}]"#, numbered(|n| format!(r#"{{"kind":"{n}"}}"#), 150_000)),
            &[201],
        ),
        create(
            "empty references",
            "",
            &format!(r#""extensions":[{{"kind":"W",{}}}]"#, list("resources", "{}", LONG)),
            TOO_MUCH,
        ),
        create("many errors", "", &list("resources", "{}", 60_000), &[422]),
        create("the same field again and again", "", &times(r#""extensions":[]"#, LONG), TOO_MUCH),
        create("unknown fields", "", &numbered(|n| format!(r#""x{n}":0"#), LONG), &[201]),
        create(
            "a wide opaque value",
            "",
            &format!(r#""extensions":[{{"kind":"W","state":[{}]}}]"#, times("0", LONG)),
            &[201],
        ),
        create("a deep opaque value", "", &deep(9_990), &[201]),
        create("a bottomless opaque value", "", &deep(20_000), &[400]),
        create(
            "labels",
            &format!(r#""labels":{{{}}}"#, numbered(|n| format!(r#""l{n}":"""#), LONG)),
            "",
            TOO_MUCH,
        ),
        create(
            "wrong labels",
            &format!(r#""labels":{{{}}}"#, numbered(|n| format!(r#""{n} ":"a b""#), 100_000)),
            "",
            &[422],
        ),
        create(
            "an annotation in escapes",
            &format!(r#""annotations":{{"a":"{}"}}"#, r"\u0061".repeat(LONG / 6)),
            "",
            &[413, 422],
        ),
        create("finalizers", &format!(r#""finalizers":[{}]"#, times(r#""a""#, LONG)), "", TOO_MUCH),
        create("owners", &format!(r#""ownerReferences":[{}]"#, times("{}", LONG)), "", TOO_MUCH),
        create(
            "owners that differ",
            &format!(r#""ownerReferences":[{}]"#, numbered(|n| format!(r#"{{"uid":"{n}"}}"#), 400_000)),
            "",
            &[413, 422],
        ),
        create("entries of managers", &format!(r#""managedFields":[{}]"#, times(entry, LONG)), "", TOO_MUCH),
        create(
            "empty entries of managers",
            &format!(r#""managedFields":[{}]"#, times("{}", LONG)),
            "",
            TOO_MUCH,
        ),
        create("a manager of many fields", &format!(r#""managedFields":[{one_entry}]"#), "", &[201]),
    ]
}

fn changes() -> Vec<Hostile> {
    let operation = r#"{"op":"test","path":"/kind","value":"ShootState"}"#;
    let copy = r#"{"op":"copy","from":"/spec/extensions","path":"/spec/extensions/-"}"#;
    let slashes = format!(r#"{{"op":"test","path":"{}","value":0}}"#, "/".repeat(100));
    let enter = r#"[{"op":"add","path":"/spec/extensions/0/state/0","value":1}]"#;
    let extensions = |bytes| numbered(|n| format!(r#"{{"kind":"{n}"}}"#), bytes);
    let aliases = |levels: usize| {
        let mut text = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
        for n in 1..levels {
            text += &format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 10].join(","));
        }
        text
    };
    let anchors = format!(
        "a: {}{}{}",
        (0..100).map(|n| format!("&a{n} [")).collect::<String>(),
        times("0", 3_000_000),
        "]".repeat(100)
    );
    let yaml = |what, body, codes| Hostile {
        what,
        method: Method::POST,
        path: collection("default"),
        content_type: YAML,
        body,
        codes,
    };
    vec![
        patch("operations", JSON_PATCH, format!("[{}]", times(operation, LONG)), TOO_MUCH),
        patch(
            "ten thousand operations",
            JSON_PATCH,
            format!("[{}]", vec![operation; 10_000].join(",")),
            &[200],
        ),
        patch("no operations", JSON_PATCH, format!("[{}]", times("0", LONG)), TOO_MUCH),
        patch("long paths", JSON_PATCH, format!("[{}]", vec![slashes.as_str(); 10_000].join(",")), &[422]),
        patch("copies of copies", JSON_PATCH, format!("[{}]", vec![copy; 40].join(",")), &[413, 422]),
        patch("a patch within an opaque value", JSON_PATCH, enter.to_owned(), TOO_MUCH),
        patch("members", MERGE, format!("{{{}}}", numbered(|n| format!(r#""a{n}":0"#), LONG)), TOO_MUCH),
        patch(
            "labels of a merge patch",
            MERGE,
            format!(r#"{{"metadata":{{"labels":{{{}}}}}}}"#, numbered(|n| format!(r#""a{n}":"""#), 20 << 10)),
            &[200],
        ),
        patch(
            "an array for a spec",
            MERGE,
            format!(r#"{{"spec":[{}]}}"#, times("0", LONG)),
            &[400, 413, 422],
        ),
        patch(
            "extensions of a merge patch",
            MERGE,
            format!(r#"{{"spec":{{"extensions":[{}]}}}}"#, extensions(LONG)),
            TOO_MUCH,
        ),
        patch(
            "an apply of extensions",
            APPLY,
            object("target", "", &format!(r#""extensions":[{}]"#, extensions(LONG))),
            TOO_MUCH,
        ),
        patch(
            "an apply of fewer",
            APPLY,
            object("target", "", &format!(r#""extensions":[{}]"#, extensions(30_000))),
            &[200],
        ),
        yaml("aliases of aliases", aliases(12), &[400]),
        yaml("anchors around anchors", anchors, &[400]),
        yaml("a list in yaml", format!("spec:\n  extensions:\n{}", "  - {}\n".repeat(LONG / 7)), &[400, 413]),
        yaml("members in yaml", numbered(|n| format!("\na{n}: 0"), 3_000_000).replace(',', ""), &[400, 413]),
    ]
}

impl Hostile {
    async fn send(&self, api: &Api) -> Result<Answer> {
        let request = api.request(self.method.clone(), &self.path).header("Content-Type", self.content_type);
        send(request.body(self.body.clone()).timeout(PATIENCE)).await
    }

    /// What is wrong with an answer.
    fn judge(&self, answer: &Answer, alone: bool) -> Option<String> {
        let shown: String = String::from_utf8_lossy(&answer.body).chars().take(300).collect();
        let known = self.codes.contains(&answer.status) || (!alone && answer.status == 429);
        let short = answer.status < 300 || answer.body.len() <= SHORT;
        let warnings: usize = answer.headers.get_all("warning").iter().map(|text| text.len()).sum();
        let fine = known && short && warnings <= 8 << 10;
        let lengths = format!("{} bytes, {warnings} of warnings", answer.body.len());
        (!fine).then(|| format!("{}: {} with {lengths}: {shown}", self.what, answer.status))
    }
}

/// A server with an object to be patched: an opaque array of seven million numbers.
async fn start(env: &TestEnv) -> Result<Dev> {
    let flags = [format!("--max-inflight-bytes={BUDGET}"), "--request-timeout=10m".to_owned()];
    let dev = Dev::start(env, flags).await?;
    let api = dev.api()?;
    let wide = format!(r#""extensions":[{{"kind":"W","state":[{}]}}]"#, times("0", LONG));
    let target = Hostile { body: object("target", "", &wide), ..create("target", "", "", &[201]) };
    ensure!(target.send(&api).await?.status == 201, "the object to be patched was not created");
    Ok(dev)
}

/// The server still does what it is there for.
async fn is_well(api: &Api, name: &str) -> Result<()> {
    let created = api.post(&collection("default"), &small(name, &json!({"a": 1}))).await?;
    ensure!(created.status == 201, "{created}");
    api.get(&path(name)).await?.ok().map(drop)
}

/// Sends everything, one after the other and then much at once.
async fn play(env: &TestEnv, limited: bool) -> Result<()> {
    let mut dev = start(env).await?;
    let (api, pid) = (dev.api()?, dev.repot().process().pid());
    let group = limited.then(|| MemoryLimit::impose(pid, BUDGET + BASE - peak(pid)?)).transpose()?;
    let mut wrong = Vec::new();
    let mut most = peak(pid)?;
    let requests: Vec<Hostile> = creations().into_iter().chain(changes()).collect();
    for request in &requests {
        let answer = request.send(&api).await?;
        let now = peak(pid)?;
        println!("{:>4} {:>5} MiB (+{}) {}", answer.status, now / MIB, (now - most) / MIB, request.what);
        most = now;
        wrong.extend(request.judge(&answer, true));
        // What it made is in the way of nobody.
        api.delete(&path(&request.what.replace(' ', "-"))).await?;
    }
    is_well(&api, "between").await?;
    for together in requests.chunks(8) {
        let answers = try_join_all(together.iter().map(|request| request.send(&api))).await?;
        wrong.extend(
            together.iter().zip(&answers).filter_map(|(request, answer)| request.judge(answer, false)),
        );
    }
    is_well(&api, "after").await?;
    most = peak(pid)?;
    println!("{} MiB were resident at most, with a budget of {} MiB", most / MIB, BUDGET / MIB);
    if let Some(group) = group {
        println!("in a control group that had {} MiB at most, page cache included", group.peak()? / MIB);
    }
    ensure!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), requests.len(), wrong.join("\n"));
    ensure!(most <= BUDGET + BASE, "{most} bytes were resident, and the budget is {BUDGET}");
    Ok(())
}

#[test]
fn no_body_takes_more_memory_than_it_is_charged_for() {
    run(async |env| play(env, false).await);
}

#[test]
#[ignore = "needs a control group that it may write: make soak"]
fn the_kernel_finds_no_hostile_body_to_end_the_server_for() {
    run(async |env| play(env, true).await);
}

#[test]
fn an_indented_answer_is_a_few_times_as_long_and_never_in_memory_as_a_whole() {
    run(async |env| {
        let mut dev = Dev::start(env, Vec::<String>::new()).await?;
        let (api, pid) = (dev.api()?, dev.repot().process().pid());
        // Twice as deep as is indented, and as often as a body of 198 KB allows.
        let state = format!("[{}1{}]", "[1,".repeat(9_980), "]".repeat(9_980));
        let padding = times(&format!("{}1{}", "[".repeat(900), "]".repeat(900)), 140_000);
        let spec =
            format!(r#""extensions":[{{"kind":"W","state":{state}}},{{"kind":"X","state":[{padding}]}}]"#);
        let body = object("deep", "", &spec);
        let request = api.request(Method::POST, &collection("default")).header("Content-Type", JSON);
        ensure!(send(request.body(body)).await?.status == 201, "the object was not created");
        let (plain, before) = (api.get(&path("deep")).await?, peak(pid)?);
        let asked = (0..16).map(|_| {
            let request = api.request(Method::GET, &path("deep")).header("User-Agent", "curl/7.88.1");
            send(request)
        });
        for answer in try_join_all(asked).await? {
            ensure!(answer.status == 200, "{answer}");
            let (length, most) = (answer.body.len(), 9 * plain.body.len() + (16 << 10));
            ensure!(length > plain.body.len() && length <= most, "{length} bytes of {}", plain.body.len());
            let tokens: Vec<u8> = answer.body.iter().copied().filter(|b| !b.is_ascii_whitespace()).collect();
            ensure!(tokens == plain.body, "it is another object");
        }
        let grown = peak(pid)? - before;
        ensure!(grown <= 32 * MIB, "{} MiB more were resident for 16 answers", grown / MIB);
        Ok(())
    });
}

#[test]
fn a_refusal_names_a_hundred_errors_and_says_that_there_are_more() {
    run(async |env| {
        let dev = Dev::start(env, Vec::<String>::new()).await?;
        let api = dev.api()?;
        let wrong = create("many errors", "", &format!(r#""resources":[{}]"#, times("{}", 60_000)), &[422]);
        let answer = wrong.send(&api).await?;
        ensure!(
            answer.status == 422 && answer.body.len() < 64 << 10,
            "{} bytes: {answer}",
            answer.body.len()
        );
        let status: Value = answer.json()?;
        ensure!(status["details"]["causes"].as_array().map(Vec::len) == Some(100), "{answer}");
        let message = status["message"].as_str().unwrap_or_default();
        ensure!(message.ends_with("too many errors: only the first 100 are listed]"), "{message}");
        Ok(())
    });
}
