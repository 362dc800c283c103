//! The shared servers, and short words for what is asked of them.

use anyhow::{Context, Result, ensure};
use repot_tests::access::{Access, Credential};
use repot_tests::garden::{FRONT_PROXY_USER, Garden};
use repot_tests::http::{Answer, Api, send};
use repot_tests::repot::{Dev, Repot, write_encryption_config};
use repot_tests::{Shared, SharedRef, TestEnv, start_shared};
use reqwest::{ClientBuilder, Method};
use serde_json::{Value, json};

use crate::shootstate::world::collection;

pub use crate::shootstate::world::{GROUP, VERSION, Watch};

pub const JSON: &str = "application/json";
pub const JSON_PATCH: &str = "application/json-patch+json";
pub const MERGE_PATCH: &str = "application/merge-patch+json";
pub const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
pub const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
pub const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

static DEV: Shared<Dev> = Shared::new(|env| start_shared(Dev::start(env, [""; 0])));
static BEHIND: Shared<Behind> = Shared::new(|env| start_shared(Behind::start(env)));

/// A namespace in the shared `repot dev`, or in another server.
pub struct TestNamespace {
    pub api: Api,
    namespace: String,
}

impl TestNamespace {
    /// A namespace that no other test uses.
    pub fn new(namespace: &str) -> Result<Self> {
        Ok(Self::of(DEV.value()?.api()?, namespace))
    }

    pub fn of(api: Api, namespace: &str) -> Self {
        Self { api, namespace: namespace.to_owned() }
    }

    /// The path of the collection, with a query.
    pub fn all(&self, query: &str) -> String {
        format!("{}{query}", collection(&self.namespace))
    }

    /// The path of an object.
    pub fn one(&self, name: &str) -> String {
        format!("{}/{name}", collection(&self.namespace))
    }

    /// A small object for this place.
    pub fn object(&self, name: &str) -> Value {
        json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": "ShootState",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"extensions": [{"kind": "Worker", "name": "w", "state": {"count": 1}}]},
        })
    }

    /// Creates a small object; the answer has to be 201.
    pub async fn create(&self, name: &str) -> Result<Value> {
        self.create_with(name, json!({})).await
    }

    /// The same with further metadata.
    pub async fn create_with(&self, name: &str, metadata: Value) -> Result<Value> {
        let mut object = self.object(name);
        for (key, value) in metadata.as_object().context("metadata is an object")? {
            object["metadata"][key] = value.clone();
        }
        let answer = self.api.post(&self.all(""), &object).await?;
        ensure!(answer.status == 201, "{answer}");
        answer.json()
    }

    pub async fn get(&self, name: &str) -> Result<Value> {
        self.api.get(&self.one(name)).await?.ok()
    }

    /// The collection, read with a query.
    pub async fn list(&self, query: &str) -> Result<Value> {
        self.api.get(&self.all(query)).await?.ok()
    }

    pub async fn merge(&self, name: &str, patch: &Value) -> Result<Answer> {
        self.api.patch(&self.one(name), MERGE_PATCH, patch).await
    }

    /// The version of an empty or full list of this namespace.
    pub async fn version(&self) -> Result<String> {
        let list = ask(&self.api, Method::GET, &self.all(""), METADATA_LIST).await?.ok()?;
        text(&list["metadata"]["resourceVersion"])
    }

    /// A watch of the collection; `query` begins with `&` or is empty.
    pub async fn watch(&self, query: &str, accept: &str) -> Result<Watch> {
        let request = self.api.request(Method::GET, &self.all(&format!("?watch=true{query}")));
        let response = request.header("Accept", accept).send().await?;
        ensure!(response.status() == 200, "the watch answered {}", response.status());
        Ok(Watch::new(response))
    }
}

/// A server behind a real kube-apiserver, with an embedded store.
pub struct Behind {
    pub garden: Garden,
    /// Held: it ends with the value.
    repot: Repot,
}

impl Behind {
    async fn start(env: &TestEnv) -> Result<Self> {
        let garden = Garden::start(env).await?;
        let keys = write_encryption_config(env.path())?;
        let flags = [
            format!("--storage=embedded:{}", env.make_dir("store")?.display()),
            format!("--encryption-provider-config={}", keys.display()),
        ];
        let repot = Repot::behind(env, &garden, &[(GROUP, VERSION)], flags).await?;
        Ok(Self { garden, repot })
    }

    pub fn value() -> Result<SharedRef<Self>> {
        BEHIND.value()
    }

    /// A client of the server itself, past the kube-apiserver.
    pub fn directly(&self, credential: Credential, builder: ClientBuilder) -> Result<Api> {
        let server = self.repot.url().replace("127.0.0.1", "localhost");
        let access = Access { server, ca_pem: self.garden.pki().serving.pem(), credential };
        Api::build(&access, builder)
    }

    /// The credential of the kube-apiserver.
    pub fn front_proxy(&self) -> Result<Credential> {
        Ok(Credential::Certificate(self.garden.pki().front_proxy.client(FRONT_PROXY_USER, &[])?))
    }
}

/// Where the shared `repot dev` is, and how to get in.
pub fn dev_access() -> Result<Access> {
    Access::read(DEV.value()?.kubeconfig())
}

/// A request with an Accept header and no body.
pub async fn ask(api: &Api, method: Method, path: &str, accept: &str) -> Result<Answer> {
    send(api.request(method, path).header("Accept", accept)).await
}

/// A request with a body of a type.
pub async fn post(
    api: &Api,
    path: &str,
    content_type: &str,
    body: impl Into<reqwest::Body>,
) -> Result<Answer> {
    send(api.request(Method::POST, path).header("Content-Type", content_type).body(body)).await
}

/// The one value of a header, or nothing.
pub fn header<'a>(answer: &'a Answer, name: &str) -> &'a str {
    answer.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// A failure with this code and reason.
pub fn expect(answer: &Answer, code: u16, reason: &str) -> Result<Value> {
    let status = answer.json()?;
    ensure!(answer.status == code && status["code"] == code && status["reason"] == reason, "{answer}");
    ensure!(status["kind"] == "Status" && status["apiVersion"] == "v1", "{answer}");
    ensure!(status["status"] == "Failure" && status["metadata"].is_object(), "{answer}");
    ensure!(status["message"].as_str().is_some_and(|message| !message.is_empty()), "{answer}");
    Ok(status)
}

pub fn text(value: &Value) -> Result<String> {
    Ok(value.as_str().with_context(|| format!("{value} is no text"))?.to_owned())
}

/// The names in a list.
pub fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
}

/// A version as the number it has to be.
pub fn number(version: &Value) -> Result<u64> {
    let digits = text(version)?;
    ensure!(!digits.starts_with('0'), "{digits:?} is no version");
    Ok(digits.parse()?)
}
