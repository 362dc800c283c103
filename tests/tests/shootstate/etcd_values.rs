//! What rests in etcd, as somebody with access to etcd could read and change it.

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repot_tests::etcd::EtcdCluster;
use serde_json::{Value, json};

/// etcd behind its JSON gateway.
pub struct Values {
    client: reqwest::Client,
    url: String,
}

impl Values {
    pub fn new(etcd: &mut EtcdCluster) -> Result<Self> {
        let url = etcd.member(0).client_url().to_owned();
        Ok(Self { client: reqwest::Client::builder().no_proxy().build()?, url })
    }

    /// All keys and values under a prefix.
    pub async fn range(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>> {
        let mut end = prefix.as_bytes().to_vec();
        *end.last_mut().context("an empty prefix")? += 1;
        let body = json!({"key": STANDARD.encode(prefix), "range_end": STANDARD.encode(end)});
        let found: Value = self.call("range", &body).await?;
        let decode =
            |text: &Value| -> Result<Vec<u8>> { Ok(STANDARD.decode(text.as_str().unwrap_or_default())?) };
        let kvs = found["kvs"].as_array().map(Vec::as_slice).unwrap_or_default();
        kvs.iter().map(|kv| Ok((String::from_utf8(decode(&kv["key"])?)?, decode(&kv["value"])?))).collect()
    }

    pub async fn put(&self, key: &str, value: &[u8]) -> Result<()> {
        let body = json!({"key": STANDARD.encode(key), "value": STANDARD.encode(value)});
        self.call("put", &body).await.map(drop)
    }

    pub async fn remove(&self, key: &str) -> Result<()> {
        self.call("deleterange", &json!({"key": STANDARD.encode(key)})).await.map(drop)
    }

    /// Forgets all history before now.
    pub async fn compact(&self) -> Result<()> {
        let now = self.call("range", &json!({"key": STANDARD.encode("x")})).await?;
        self.call("compaction", &json!({"revision": now["header"]["revision"]})).await.map(drop)
    }

    async fn call(&self, method: &str, body: &Value) -> Result<Value> {
        let request = self.client.post(format!("{}/v3/kv/{method}", self.url)).json(body);
        Ok(request.send().await?.error_for_status()?.json().await?)
    }
}
