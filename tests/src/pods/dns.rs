//! The names of the cluster, as its DNS would have them: `<service>.<namespace>.svc.cluster.local` and
//! `<host name>.<service>.<namespace>.svc.cluster.local` lead to the addresses of pods, whatever the type of the Service (there
//! is no kube-proxy, so no address of a Service and no translation of ports; with a service proxy, names of Services lead to their
//! addresses).
//!
//! What the EndpointSlices say is answered at once and without a time to live. Other names go to a server of the test's own
//! when it gave one, and do not exist otherwise.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::reflector::Store;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

use super::service_proxy::ServiceIps;
use super::wire::API_IP;

const DOMAIN: &str = ".svc.cluster.local";
const HEADER_BYTES: usize = 12;
const LARGEST_BYTES: usize = 4096;
const TYPE_A: u16 = 1;
/// How long a server of the test's own may think; its client has given up by then.
const UPSTREAM_DEADLINE: Duration = Duration::from_secs(5);
const OK: u8 = 0;
const NAME_UNKNOWN: u8 = 3;

/// A question: who asks for what.
#[derive(Debug, PartialEq, Eq)]
struct Question {
    /// Without the final dot, in lower case.
    name: String,
    kind: u16,
    /// Where it ends in the message.
    end: usize,
}

/// Answers questions for ever.
pub(super) async fn serve(
    socket: UdpSocket,
    slices: Store<EndpointSlice>,
    services: ServiceIps,
    upstream: Option<SocketAddr>,
) {
    let socket = Arc::new(socket);
    let mut message = [0; LARGEST_BYTES];
    loop {
        // An error here is a client that is gone already; the next one may still come.
        let Ok((length, client)) = socket.recv_from(&mut message).await else { continue };
        let message = &message[..length];
        let Some(question) = parse(message) else { continue };
        let of_service = services.find(&question.name).map(|ip| vec![ip]);
        let found = of_service.or_else(|| addresses(&question.name, &slices.state()));
        match (found, upstream) {
            (None, Some(upstream)) if !question.name.ends_with("cluster.local") => {
                tokio::spawn(forward(socket.clone(), message.to_vec(), client, upstream));
            }
            (found, _) => {
                let _ = socket.send_to(&answer(message, &question, found.as_deref()), client).await;
            }
        }
    }
}

/// Passes each datagram to a server of this machine and its answer back, for ever.
pub(super) async fn relay(socket: UdpSocket, target: SocketAddr) {
    let socket = Arc::new(socket);
    let mut exchanges = JoinSet::new();
    let mut message = [0; LARGEST_BYTES];
    loop {
        while exchanges.try_join_next().is_some() {}
        // That a client is gone is told here, too, and is no reason to end.
        let Ok((length, client)) = socket.recv_from(&mut message).await else { continue };
        exchanges.spawn(forward(socket.clone(), message[..length].to_vec(), client, target));
    }
}

/// Passes a question to the other server and its answer back. The socket for it is in the world of the tests.
async fn forward(socket: Arc<UdpSocket>, message: Vec<u8>, client: SocketAddr, upstream: SocketAddr) {
    let ask = async {
        let own = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
        own.connect(upstream).await?;
        own.send(&message).await?;
        let mut answer = vec![0; LARGEST_BYTES];
        let length = own.recv(&mut answer).await?;
        socket.send_to(&answer[..length], client).await
    };
    // No answer looks to the client as it would look without this server between.
    let _ = tokio::time::timeout(UPSTREAM_DEADLINE, ask).await;
}

fn parse(message: &[u8]) -> Option<Question> {
    let is_question = message.get(2)? & 0x80 == 0 && message.get(4..6)? == [0, 1];
    let mut labels = Vec::new();
    let mut at = HEADER_BYTES;
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(message.get(at..at + length)?).to_lowercase());
        at += length;
    }
    let kind = u16::from_be_bytes(message.get(at..at + 2)?.try_into().ok()?);
    let end = at + 4;
    (is_question && message.len() >= end).then(|| Question { name: labels.join("."), kind, end })
}

/// The addresses of a name; `None` when there is no such name.
pub(super) fn addresses(name: &str, slices: &[Arc<EndpointSlice>]) -> Option<Vec<Ipv4Addr>> {
    let short = name.strip_suffix(DOMAIN)?;
    if short == "kubernetes.default" {
        return Some(vec![API_IP]);
    }
    let labels: Vec<&str> = short.split('.').collect();
    let (host, service, namespace) = match labels[..] {
        [service, namespace] => (None, service, namespace),
        [host, service, namespace] => (Some(host), service, namespace),
        _ => return None,
    };
    let of_service = slices.iter().filter(|slice| {
        let labels = slice.metadata.labels.as_ref();
        slice.metadata.namespace.as_deref() == Some(namespace)
            && labels.and_then(|l| l.get("kubernetes.io/service-name")).is_some_and(|name| name == service)
    });
    let ready = of_service.flat_map(|slice| &slice.endpoints).filter(|endpoint| {
        endpoint.conditions.as_ref().is_none_or(|c| c.ready != Some(false))
            && (host.is_none() || endpoint.hostname.as_deref() == host)
    });
    let found: Vec<Ipv4Addr> =
        ready.flat_map(|endpoint| &endpoint.addresses).filter_map(|address| address.parse().ok()).collect();
    (!found.is_empty()).then_some(found)
}

/// The answer to a question; names that exist have no records but addresses of version 4.
fn answer(message: &[u8], question: &Question, found: Option<&[Ipv4Addr]>) -> Vec<u8> {
    let records = if question.kind == TYPE_A { found.unwrap_or_default() } else { &[] };
    let code = if found.is_some() { OK } else { NAME_UNKNOWN };
    let mut answer = message[..question.end].to_vec();
    // It is an answer, with authority; recursion is at hand.
    answer[2] = 0x84 | (message[2] & 0x01);
    answer[3] = 0x80 | code;
    let count = u16::try_from(records.len()).unwrap_or(u16::MAX);
    answer[6..8].copy_from_slice(&count.to_be_bytes());
    answer[8..HEADER_BYTES].fill(0);
    for address in records {
        // The name of the question, type A, class IN, no time to live, four bytes.
        answer.extend([0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
        answer.extend(address.octets());
    }
    answer
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn question(name: &str, kind: u16) -> Vec<u8> {
        let mut message = vec![7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
        for label in name.split('.') {
            message.push(u8::try_from(label.len()).expect("short"));
            message.extend(label.as_bytes());
        }
        message.push(0);
        message.extend(kind.to_be_bytes());
        message.extend([0, 1]);
        message
    }

    fn slices() -> Vec<Arc<EndpointSlice>> {
        let slice = json!({
            "metadata": {"namespace": "plants", "labels": {"kubernetes.io/service-name": "etcd"}},
            "addressType": "IPv4",
            "endpoints": [
                {"addresses": ["10.101.0.2"], "hostname": "etcd-0", "conditions": {"ready": true}},
                {"addresses": ["10.102.0.2"], "hostname": "etcd-1", "conditions": {"ready": false}},
                {"addresses": ["10.103.0.2"], "hostname": "etcd-2"},
            ],
        });
        vec![Arc::new(serde_json::from_value(slice).expect("a slice"))]
    }

    fn lookup(name: &str) -> Option<Vec<String>> {
        let found = addresses(name, &slices())?;
        Some(found.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn services_and_pods_that_are_ready_have_addresses() {
        let two = Some(vec!["10.101.0.2".to_owned(), "10.103.0.2".to_owned()]);
        assert_eq!(lookup("etcd.plants.svc.cluster.local"), two);
        let one = Some(vec!["10.101.0.2".to_owned()]);
        assert_eq!(lookup("etcd-0.etcd.plants.svc.cluster.local"), one);
        for unknown in ["etcd-1.etcd.plants.svc.cluster.local", "etcd.other.svc.cluster.local", "etcd"] {
            assert_eq!(lookup(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn answers_carry_the_question_and_the_addresses() {
        let message = question("Etcd.Plants", TYPE_A);
        let parsed = parse(&message).expect("a question");
        assert_eq!((parsed.name.as_str(), parsed.kind, parsed.end), ("etcd.plants", TYPE_A, message.len()));
        let answer = answer(&message, &parsed, Some(&[Ipv4Addr::new(10, 1, 2, 3)]));
        assert_eq!(answer[..HEADER_BYTES], [7, 7, 0x85, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
        assert!(answer.ends_with(&[0, 4, 10, 1, 2, 3]));
    }

    #[test]
    fn unknown_names_and_other_types_have_no_records() {
        for (kind, found, code) in [(TYPE_A, None, NAME_UNKNOWN), (28, Some(&[Ipv4Addr::LOCALHOST][..]), OK)]
        {
            let message = question("a.b", kind);
            let parsed = parse(&message).expect("a question");
            let answer = answer(&message, &parsed, found);
            assert_eq!((answer[3] & 0x0f, &answer[6..8], answer.len()), (code, &[0, 0][..], parsed.end));
        }
    }

    #[test]
    fn broken_messages_are_no_questions() {
        let whole = question("a.b", TYPE_A);
        for end in 0..whole.len() {
            assert_eq!(parse(&whole[..end]), None, "{end} bytes");
        }
    }
}
