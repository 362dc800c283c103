//! A state that is sent and compared piece by piece: a test of many at once must not hold them all.

use anyhow::{Context, Result, bail, ensure};
use bytes::{Bytes, BytesMut};
use futures::stream;
use repot_tests::http::Api;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE};
use reqwest::{Body, Method, Response};

use crate::shootstate::world::{GROUP, VERSION, collection, path};

const PIECE: usize = 1 << 20;
/// Metadata is shorter.
const HEAD: usize = 256 << 10;
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-";

/// Text that no codec shortens by more than a quarter, and that never says the same twice.
pub fn noise(len: usize) -> Bytes {
    let mut text = Vec::with_capacity(len + 10);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    while text.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.extend((0..10).map(|n| LETTERS[usize::try_from(state >> (4 + 6 * n) & 63).unwrap_or_default()]));
    }
    text.truncate(len);
    text.into()
}

/// One of several states that have the same letters, in another order.
#[derive(Clone)]
pub struct Blob {
    pub name: String,
    head: Bytes,
    /// Everything from the spec on, as it has to come back.
    tail: Vec<Bytes>,
}

impl Blob {
    pub fn new(number: usize, noise: &Bytes) -> Self {
        let name = format!("blob-{number}");
        let head = head(&name, "");
        let open = format!(r#""spec":{{"extensions":[{{"kind":"Worker","name":"w-{number}","state":""#);
        let cut = number * 4099 % noise.len();
        let mut tail = vec![Bytes::from(open)];
        tail.extend([noise.slice(cut..), noise.slice(..cut)].iter().flat_map(pieces));
        tail.push(Bytes::from_static(br#""}]}}"#));
        Self { name, head, tail }
    }

    /// The same, meant for a version of the object.
    pub fn at(&self, version: &str) -> Self {
        Self { head: head(&self.name, &format!(r#","resourceVersion":"{version}""#)), ..self.clone() }
    }

    pub fn len(&self) -> usize {
        self.head.len() + self.tail.iter().map(Bytes::len).sum::<usize>()
    }

    /// All of it in one piece.
    pub fn text(&self) -> Vec<u8> {
        [std::slice::from_ref(&self.head), &self.tail[..]].concat().concat()
    }

    /// Sends it by a method to a path, and reads nothing of the answer.
    pub async fn send(&self, api: &Api, method: Method, path: &str) -> Result<Response> {
        let all = std::iter::once(self.head.clone()).chain(self.tail.clone()).map(Ok::<_, std::io::Error>);
        let request = api.request(method, path).header(CONTENT_TYPE, "application/json");
        let request = request.header(CONTENT_LENGTH, self.len());
        request.body(Body::wrap_stream(stream::iter(all))).send().await.context("failed to send a blob")
    }

    /// Creates it. The answer has to have all of it.
    pub async fn create(&self, api: &Api) -> Result<()> {
        let answer = self.send(api, Method::POST, &collection("default")).await?;
        if answer.status() != 201 {
            bail!("{}: {} {}", self.name, answer.status(), answer.text().await?)
        }
        self.compare(answer).await
    }

    /// Gets it. It has to be the same, byte for byte.
    pub async fn get(&self, api: &Api) -> Result<()> {
        let answer = api.request(Method::GET, &path(&self.name)).send().await?;
        if answer.status() != 200 {
            bail!("{}: {} {}", self.name, answer.status(), answer.text().await?)
        }
        self.compare(answer).await
    }

    /// Compares what comes behind the metadata.
    async fn compare(&self, mut answer: Response) -> Result<()> {
        let mut expected = self.tail.iter().cloned();
        let open = expected.next().context("no tail")?;
        let mut found = BytesMut::new();
        while find(&found, &open).is_none() {
            ensure!(found.len() < HEAD, "{} came back with another spec", self.name);
            found.extend_from_slice(&answer.chunk().await?.context("the answer ended early")?);
        }
        let at = find(&found, &open).context("no spec")? + open.len();
        let (mut chunk, mut piece) = (found.split_off(at).freeze(), Bytes::new());
        loop {
            while !chunk.is_empty() {
                if piece.is_empty() {
                    piece = expected.next().context("too long")?;
                    continue;
                }
                let len = piece.len().min(chunk.len());
                ensure!(
                    piece.split_to(len) == chunk.split_to(len),
                    "{} came back as something else",
                    self.name
                );
            }
            match answer.chunk().await? {
                Some(next) => chunk = next,
                None => break,
            }
        }
        ensure!(piece.is_empty() && expected.next().is_none(), "{} came back cut short", self.name);
        Ok(())
    }
}

fn head(name: &str, more: &str) -> Bytes {
    let meta = format!(r#"{{"name":"{name}","namespace":"default"{more}}}"#);
    format!(r#"{{"apiVersion":"{GROUP}/{VERSION}","kind":"ShootState","metadata":{meta},"#).into()
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|here| here == part)
}

fn pieces(text: &Bytes) -> Vec<Bytes> {
    (0..text.len()).step_by(PIECE).map(|at| text.slice(at..text.len().min(at + PIECE))).collect()
}
