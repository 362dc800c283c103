//! Traces from kube-apiserver through Repot to webhooks, the store and a key management service.

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repot_tests::access::Credential;
use repot_tests::encryption::{Plugin, config, write_config};
use repot_tests::etcd::EtcdCluster;
use repot_tests::garden::{Garden, GardenOptions};
use repot_tests::otel::{Collector, Span};
use repot_tests::repot::{Repot, register};
use repot_tests::wait::until;
use repot_tests::webhook::WebhookServer;
use repot_tests::{TestEnv, run};
use serde_json::{Value, json};

use super::world::{ARRIVAL, ClientTrace, arrived, below, direct, direct_as, tracing};
use crate::shootstate::world::{GROUP, VERSION, collection, large, path};
use crate::webhook::questions::review;
use crate::webhook::world as webhooks;

const MILLION: u32 = 1_000_000;
/// What no span may have. The user's name is one, since requests that go well tell it to nobody but the audit log.
const USER: &str = "user-of-the-test-of-traces";
const OBJECT: &str = "object-of-the-test-of-traces";
const LABEL: &str = "label-of-the-test-of-traces";
const PAYLOAD: &str = "payload-of-the-test-of-traces";

/// Two servers on one etcd, with one key management service. kube-apiserver traces everything; the first server only what
/// kube-apiserver traces; the second one everything.
struct World {
    garden: Garden,
    first: Repot,
    second: Repot,
    /// What kube-apiserver sends.
    theirs: Collector,
    /// What Repot sends.
    ours: Collector,
    webhook: WebhookServer,
    _etcd: EtcdCluster,
    _plugin: Plugin,
}

async fn start(env: &TestEnv) -> Result<World> {
    let (theirs, ours) = (Collector::start(env).await?, Collector::start(env).await?);
    let options = GardenOptions {
        apiserver_flags: vec![tracing(&theirs.config(env, MILLION)?)],
        ..GardenOptions::default()
    };
    let garden = Garden::start_with(env, options).await?;
    let etcd = EtcdCluster::start(env, 1).await?;
    let plugin = Plugin::start(env).await?;
    let keys = env.make_dir("keys")?.join("encryption.yaml");
    write_config(&keys, &config(&[&plugin.provider("main")]).to_string())?;
    let flags = [
        format!("--etcd-servers={}", etcd.endpoints().join(",")),
        format!("--encryption-provider-config={}", keys.display()),
        // The service is asked for its status every three seconds.
        "--encryption-second=50ms".to_owned(),
    ];
    let replica = async |rate| {
        let own = [&flags[..], &[tracing(&ours.config(env, rate)?)]].concat();
        Repot::replica(env, &garden, own).await
    };
    let (first, second) = (replica(0).await?, replica(MILLION).await?);
    register(&garden, &[(GROUP, VERSION)], first.port()?).await?;
    let webhook = WebhookServer::start(&garden.pki().serve("hooks", "judge")?).await?;
    Ok(World { garden, first, second, theirs, ours, webhook, _etcd: etcd, _plugin: plugin })
}

/// Registers the webhook for ShootStates, and waits until the server asks it.
async fn register_webhook(world: &World) -> Result<()> {
    let service =
        json!({"namespace": "hooks", "name": "judge", "port": world.webhook.port(), "path": "/judge"});
    let rule = json!({
        "operations": ["*"], "apiGroups": [GROUP], "apiVersions": [VERSION], "resources": ["shootstates"],
    });
    let ca = STANDARD.encode(world.garden.pki().serving.pem());
    let objects = [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "hooks"}}),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "hooks", "name": "judge"},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "judges"},
            "webhooks": [{
                "name": "judge.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "clientConfig": {"service": service, "caBundle": ca}, "rules": [rule],
            }],
        }),
    ];
    world.garden.apply(&objects).await?;
    let probe = format!("{}?dryRun=All", collection("default"));
    until("Repot to know the webhook", ARRIVAL, async || {
        world.garden.api().post(&probe, &large("probe", 1000)).await?.ok()?;
        ensure!(!world.webhook.asked("/judge").is_empty(), "it was not asked yet");
        Ok(())
    })
    .await
}

fn named<'a>(spans: &[&'a Span], name: &str) -> Result<&'a Span> {
    let names: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
    spans.iter().find(|span| span.name == name).copied().with_context(|| format!("no {name} in {names:?}"))
}

fn number(span: &Span, attribute: &str) -> Result<i64> {
    span.attributes.get(attribute).and_then(Value::as_i64).with_context(|| format!("{attribute} in {span:?}"))
}

fn object() -> Value {
    let mut object = large(OBJECT, 2 << 20);
    object["metadata"]["labels"] = json!({LABEL: "x"});
    object["spec"]["extensions"][0]["state"] = json!({"value": PAYLOAD});
    object
}

/// A write through kube-apiserver: the server's span is a child of that of kube-apiserver's proxy.
async fn a_write_is_traced(world: &mut World) -> Result<()> {
    let api = repot_tests::http::Api::new(&world.garden.user(USER, &["system:masters"])?)?;
    let answer = api.post(&collection("default"), &object()).await?;
    let audit_id = answer.headers.get("audit-id").context("an audit ID")?.to_str()?.to_owned();
    answer.ok()?;
    let of_request = |span: &Span| span.attributes.get("audit-id").is_some_and(|id| *id == *audit_id);
    let (request, spans) = arrived(&mut world.ours, "the span of the write", of_request).await?;
    let route = format!("POST /apis/{GROUP}/{VERSION}/namespaces/{{:namespace}}/shootstates");
    ensure!(request.name == route && request.kind == "Server", "{request:?}");
    ensure!(
        request.service == "repot-apiserver" && request.resource.contains_key("service.instance.id"),
        "{request:?}"
    );
    ensure!(number(&request, "http.response.status_code")? == 201, "{request:?}");
    for (attribute, value) in [("verb", "create"), ("group", GROUP), ("resource", "shootstates")] {
        ensure!(request.attributes[attribute] == value, "{request:?}");
    }
    let is_parent = |span: &Span| span.id == request.parent && span.trace == request.trace;
    let (proxy, _) = arrived(&mut world.theirs, "the span of kube-apiserver's proxy", is_parent).await?;
    ensure!(proxy.service == "apiserver" && proxy.kind == "Client", "{proxy:?}");

    let inner = below(&request, &spans);
    named(&inner, "authorization")?;
    let asked = named(&inner, "Call validating webhook")?;
    ensure!(asked.kind == "Client" && asked.attributes["webhook"] == "judge.example.com", "{asked:?}");
    ensure!(asked.attributes["admission.outcome"] == "allowed", "{asked:?}");
    let told = world.webhook.asked("/judge").into_iter().filter_map(|asked| {
        asked.headers.get("traceparent").and_then(|value| value.to_str().ok()).map(str::to_owned)
    });
    let expected = format!("00-{}-{}-01", request.trace, asked.id);
    ensure!(told.into_iter().any(|told| told == expected), "the webhook was not told {expected}");
    let stored = named(&inner, "storage.create")?;
    ensure!(number(stored, "storage.chunks_written")? > 2, "{stored:?}");
    ensure!(number(stored, "storage.bytes_written")? > 1 << 20, "{stored:?}");
    ensure!(inner.iter().all(|span| span.start >= request.start && span.end >= span.start), "{inner:?}");
    Ok(())
}

/// A read by the other server, whose first sight of the object needs the key management service.
async fn a_read_is_traced(world: &mut World) -> Result<()> {
    let api = direct_as(&world.garden, &world.second, USER, &["system:masters"])?;
    let client = ClientTrace::new()?;
    let whole =
        format!("{}?fieldSelector=metadata.name%3D{OBJECT}&labelSelector={LABEL}", collection("default"));
    client.get(&api, &path(OBJECT)).await?.ok()?;
    let of_client = |span: &Span| span.trace == client.trace && span.kind == "Server";
    let (request, _) = arrived(&mut world.ours, "the span of the read", of_client).await?;
    ensure!(request.parent == client.span, "{request:?}");
    let is_payload = |span: &Span| span.trace == client.trace && span.name == "storage.read_payload";
    let (payload, spans) = arrived(&mut world.ours, "the span of the payload", is_payload).await?;
    ensure!(number(&payload, "storage.chunks")? > 2, "{payload:?}");
    let inner = below(&request, &spans);
    named(&inner, "storage.get")?;
    let decrypted = named(&inner, "kms.Decrypt")?;
    ensure!(decrypted.attributes["kms.provider"] == "main" && decrypted.status != "Error", "{decrypted:?}");
    ensure!(number(&request, "http.response.body.size")? > 1 << 20, "{request:?}");

    // Without a parent, at the rate of the server; the query stays out of it.
    api.get(&whole).await?.ok()?;
    let is_list = |span: &Span| {
        span.parent.is_empty() && span.attributes.get("verb").is_some_and(|verb| verb == "list")
    };
    let (list, spans) = arrived(&mut world.ours, "the span of the list", is_list).await?;
    ensure!(number(named(&below(&list, &spans), "storage.list")?, "storage.objects")? == 1, "{list:?}");
    Ok(())
}

#[test]
fn a_request_is_one_trace_from_kube_apiserver_to_the_key_management_service() {
    run(async |env| {
        let mut world = start(env).await?;
        register_webhook(&world).await?;
        a_write_is_traced(&mut world).await?;
        a_read_is_traced(&mut world).await?;
        let is_status = |span: &Span| span.name == "kms.Status";
        let (status, spans) = arrived(&mut world.ours, "a question for the status", is_status).await?;
        let probe = spans.iter().find(|span| span.id == status.parent).context("its parent")?;
        ensure!(probe.name == "kms.probe" && probe.parent.is_empty(), "{probe:?}");

        for word in [USER, OBJECT, LABEL, PAYLOAD, "fieldSelector"] {
            ensure!(!world.ours.contains(word).await?, "{word} is in what Repot has sent");
        }
        let spans = world.ours.spans().await?;
        ensure!(spans.iter().all(|span| span.events == 0), "log lines are in traces");
        // What is not sent yet is sent at the end.
        let api = direct_as(&world.garden, &world.second, "admin", &["system:masters"])?;
        let last = ClientTrace::new()?;
        ensure!(last.get(&api, "/livez").await?.status == 200, "it does not live");
        world.second.stop().await?;
        world.first.stop().await?;
        let spans = world.ours.spans().await?;
        ensure!(spans.iter().any(|span| span.trace == last.trace), "the last span is lost");
        Ok(())
    });
}

#[test]
fn reviews_are_traced() {
    run(async |env| {
        let mut collector = Collector::start(env).await?;
        let (garden, _) = webhooks::garden(env).await?;
        let dir = env.make_dir("webhook")?;
        let args =
            [tracing(&collector.config(env, 0)?), format!("--facts={}", env.make_dir("facts")?.display())];
        let mut repot = webhooks::webhook(env, &garden, &dir, &args).await?;
        let api = direct(&garden, &repot, Credential::Anonymous)?;
        let client = ClientTrace::new()?;
        let shoot = webhooks::mk_shoot("direct", OBJECT, "a");
        let header = format!("00-{}-{}-01", client.trace, client.span);
        let question =
            api.request(reqwest::Method::POST, "/validate-markers?timeout=10s").header("traceparent", header);
        let answer = repot_tests::http::send(question.json(&review(shoot.clone(), shoot.clone()))).await?;
        ensure!(answer.ok()?["response"]["allowed"] == true, "a Shoot that does not change is refused");
        // One that kube-apiserver does not trace.
        api.post("/validate-markers", &review(shoot.clone(), shoot)).await?.ok()?;
        repot.stop().await?;
        let spans = collector.spans().await?;
        let reviews: Vec<_> = spans.iter().filter(|span| span.kind == "Server").collect();
        let [only] = reviews[..] else { anyhow::bail!("{reviews:?}") };
        ensure!(only.name == "POST /validate-markers" && only.service == "repot-webhook", "{only:?}");
        ensure!(only.trace == client.trace && only.parent == client.span, "{only:?}");
        named(&below(only, &spans), "gather facts")?;
        ensure!(!collector.contains(OBJECT).await?, "the name of the object is in the trace");
        Ok(())
    });
}
