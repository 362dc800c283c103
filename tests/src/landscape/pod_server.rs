//! What Pods of a Shoot serve, as a kubelet has it: a Pod with a host port serves from when its node has seen it until it is gone.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// Servers of the Pods of one node, by the UID of the Pod. They end with this.
#[derive(Default)]
pub struct PodServers(BTreeMap<String, AbortHandle>);

impl PodServers {
    /// Starts what new Pods serve, and ends what Pods served that are not listed any more. A node that cannot list its Pods does not
    /// call this, and they go on.
    pub fn follow(&mut self, pods: &[Value]) {
        let uid = |pod: &Value| pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let listed: Vec<String> = pods.iter().map(uid).collect();
        self.0.retain(|uid, server| {
            let stays = listed.contains(uid);
            if !stays {
                server.abort();
            }
            stays
        });
        for pod in pods {
            let port = pod.pointer("/spec/containers/0/ports/0/hostPort").and_then(Value::as_u64);
            let Some(port) = port.and_then(|port| u16::try_from(port).ok()) else { continue };
            let uid = uid(pod);
            self.0.entry(uid.clone()).or_insert_with(|| tokio::spawn(serve(port, uid)).abort_handle());
        }
    }
}

impl Drop for PodServers {
    fn drop(&mut self) {
        self.0.values().for_each(AbortHandle::abort);
    }
}

/// Answers each request with the UID of the Pod. Where the port is not to be had, nobody answers, and the client of the test says so.
async fn serve(port: u16, uid: String) {
    let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await else { return };
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(answer(stream, uid.clone()));
    }
}

async fn answer(mut stream: TcpStream, uid: String) {
    let mut request = [0; 1024];
    if matches!(stream.read(&mut request).await, Ok(count) if count > 0) {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", uid.len());
        // A client that is gone needs no answer.
        let _ = stream.write_all(format!("{head}{uid}").as_bytes()).await;
    }
}
