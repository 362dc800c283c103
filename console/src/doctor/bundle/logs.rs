//! The ends of the logs of Repot's Pods.

use std::time::{Duration, Instant};

use futures::AsyncReadExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::LogParams};
use repot_apimachinery::value::{items_at, text_at};
use serde_json::Value;

use super::{Bundle, left};
use crate::{doctor::survey::Survey, objects::message};

/// Most bytes of one log.
const MOST: usize = 2 << 20;
/// Lines that are asked for: more bytes than that are read, and the last ones kept.
const LINES: i64 = 20_000;
/// Most containers whose logs are collected.
const MOST_CONTAINERS: usize = 200;
/// How long one log may take.
const LIMIT: Duration = Duration::from_secs(20);

/// A container, and whether its run before the present one is meant.
struct Source {
    namespace: String,
    pod: String,
    container: String,
    previous: bool,
}

pub(super) async fn collect(survey: &Survey, bundle: &mut Bundle, end: Instant) {
    let pods = survey.pods.as_deref().unwrap_or_default();
    let sources: Vec<Source> = pods.iter().flat_map(sources).collect();
    for source in sources.iter().skip(MOST_CONTAINERS) {
        bundle.leave_out(&source.path(), "there are too many containers");
    }
    for source in sources.iter().take(MOST_CONTAINERS) {
        let Some(left) = left(end) else {
            bundle.leave_out(&source.path(), "no time was left");
            continue;
        };
        match tokio::time::timeout(left.min(LIMIT), read(survey, source)).await {
            Ok(Ok(log)) => bundle.add_text(&source.path(), &log),
            Ok(Err(error)) => bundle.leave_out(&source.path(), &error),
            Err(_) => bundle.leave_out(&source.path(), "it took too long"),
        }
    }
}

impl Source {
    fn path(&self) -> String {
        let kind = if self.previous { "previous.log" } else { "log" };
        format!("logs/{}/{}/{}.{kind}", self.namespace, self.pod, self.container)
    }
}

/// The containers of a Pod, and the earlier run of those that have started again.
fn sources(pod: &Value) -> Vec<Source> {
    let text = |path| text_at(pod, path).unwrap_or_default().to_owned();
    let statuses = items_at(pod, "/status/containerStatuses");
    let mut all = Vec::new();
    for container in items_at(pod, "/spec/containers") {
        let name = text_at(container, "/name").unwrap_or_default();
        let restarts =
            statuses.iter().find(|one| one["name"] == name).and_then(|one| one["restartCount"].as_i64());
        for previous in [false, true] {
            if !previous || restarts.unwrap_or_default() > 0 {
                all.push(Source {
                    namespace: text("/metadata/namespace"),
                    pod: text("/metadata/name"),
                    container: name.to_owned(),
                    previous,
                });
            }
        }
    }
    all
}

async fn read(survey: &Survey, source: &Source) -> Result<String, String> {
    let pods: Api<Pod> = Api::namespaced(survey.objects.client().clone(), &source.namespace);
    let params = LogParams {
        container: Some(source.container.clone()),
        previous: source.previous,
        tail_lines: Some(LINES),
        timestamps: true,
        ..LogParams::default()
    };
    let stream = pods.log_stream(&source.pod, &params).await.map_err(|error| message(&error))?;
    let (mut stream, mut tail) = (std::pin::pin!(stream), Tail::default());
    let mut buffer = vec![0; 64 << 10];
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) => return Ok(tail.text()),
            Ok(count) => tail.push(&buffer[..count]),
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// The last bytes of a stream.
#[derive(Default)]
struct Tail {
    bytes: Vec<u8>,
    dropped: usize,
}

impl Tail {
    fn push(&mut self, more: &[u8]) {
        self.bytes.extend_from_slice(more);
        if self.bytes.len() > 2 * MOST {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let over = self.bytes.len().saturating_sub(MOST);
        self.bytes.drain(..over);
        self.dropped += over;
    }

    /// A line whose beginning is left out goes as well: what tells that it is a secret may be in that.
    fn text(mut self) -> String {
        self.cut();
        if self.dropped > 0 {
            let end = self.bytes.iter().position(|byte| *byte == b'\n').map_or(self.bytes.len(), |at| at + 1);
            self.bytes.drain(..end);
            self.dropped += end;
        }
        let note = match self.dropped {
            0 => String::new(),
            count => format!("({count} bytes before are left out)\n"),
        };
        note + &String::from_utf8_lossy(&self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{doctor::checks::tests::survey, objects::Objects};

    #[test]
    fn last_bytes_of_a_log_are_kept() {
        let mut tail = Tail::default();
        for line in 0..300_000 {
            tail.push(format!("line {line:06}\n").as_bytes());
        }
        let text = tail.text();
        assert!(text.len() <= MOST + 60 && text.ends_with("line 299999\n"), "{}", text.len());
        assert!(text.starts_with('(') && text.contains("bytes before are left out)\n"));
        let mut short = Tail::default();
        short.push(b"one\n");
        assert_eq!(short.text(), "one\n");
    }

    #[test]
    fn container_that_has_started_again_has_two_logs() {
        let pod = json!({
            "metadata": {"namespace": "n", "name": "p"},
            "spec": {"containers": [{"name": "a"}, {"name": "b"}]},
            "status": {"containerStatuses": [{"name": "a", "restartCount": 2}, {"name": "b", "restartCount": 0}]},
        });
        let paths: Vec<String> = sources(&pod).iter().map(Source::path).collect();
        assert_eq!(paths, ["logs/n/p/a.log", "logs/n/p/a.previous.log", "logs/n/p/b.log"]);
    }

    /// Answers each request with the same log; gives its URL.
    async fn serve(log: String) -> String {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                let head =
                    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", log.len());
                let _ = connection.read(&mut [0; 4096]).await;
                let _ = connection.write_all(format!("{head}{log}").as_bytes()).await;
            }
        });
        url
    }

    #[tokio::test]
    async fn ends_of_logs_are_collected_without_tokens() {
        let mut log: String = (0..300_000).map(|line| format!("line {line:06}\n")).collect();
        log.push_str("Authorization: Bearer hunter2\n");
        let config = kube::Config::new(serve(log).await.parse().expect("a URL"));
        let client = kube::Client::try_from(config).expect("a client");
        let pod =
            json!({"metadata": {"namespace": "n", "name": "p"}, "spec": {"containers": [{"name": "c"}]}});
        let survey = Survey { objects: Objects::new(client, LIMIT), pods: Ok(vec![pod]), ..survey() };
        let mut bundle = Bundle::default();
        collect(&survey, &mut bundle, Instant::now() + LIMIT).await;
        let text = String::from_utf8_lossy(&bundle.files()["logs/n/p/c.log"]).into_owned();
        assert!(
            text.len() <= MOST + 60 && text.ends_with("line 299999\nAuthorization: [REDACTED]\n"),
            "{}",
            text.len()
        );
        assert!(bundle.missing().is_empty(), "{:?}", bundle.missing());
    }
}
