//! Connections: neither one user nor one host has those of others, however many it opens.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, stream};
use repot_tests::access::Credential;
use repot_tests::garden::{FRONT_PROXY_USER, Garden};
use repot_tests::http::{Api, send};
use repot_tests::process::Spec;
use repot_tests::repot::{Repot, program, write_encryption_config};
use repot_tests::wait::until;
use repot_tests::{TestEnv, run};
use reqwest::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::connections::{authority_of, gauge, start_tls};
use super::starvation::{Hoarder, certificate, grant};
use crate::shootstate::world::{Server, World, collection};

const DEADLINE: Duration = Duration::from_secs(60);
/// How long somebody waits for a connection and an answer.
const SOON: Duration = Duration::from_secs(10);
/// File descriptors that the server has for everything.
const DESCRIPTORS: u64 = 256;

/// A server with few file descriptors, which a kube-apiserver answers for who its clients are.
async fn world(env: &TestEnv, users: &[&str]) -> Result<World> {
    let garden = Garden::start(env).await?;
    let dir = env.make_dir("repot-config")?;
    let (cert, key) = garden.pki().serve("repot-system", "repot-apiserver")?.write(&dir, "serving")?;
    let delegate = garden.delegate("repot-apiserver").await?;
    let keys = write_encryption_config(env.path())?;
    let limited = format!("ulimit -n {DESCRIPTORS} && exec \"$0\" \"$@\"");
    let spec = Spec::new("repot-apiserver", "sh").arg("-c").arg(limited).arg(program()?).arg("apiserver");
    let spec = spec.flag("bind-address", "127.0.0.1").flag("secure-port", "0");
    let spec = spec.flag("storage", format!("embedded:{}", env.make_dir("store")?.display()));
    let spec = [
        ("tls-cert-file", cert),
        ("tls-private-key-file", key),
        ("authentication-kubeconfig", delegate.clone()),
        ("authorization-kubeconfig", delegate),
        ("encryption-provider-config", keys),
    ]
    .into_iter()
    .fold(spec, |spec, (name, path)| spec.flag(name, path));
    let repot = Repot::start_program(env, spec).await?;
    let (api, kubectl) = (garden.api().clone(), garden.kubectl_tool().clone());
    let world = World { api, kubectl, etcd: None, server: Server::Behind(repot), garden: Some(garden) };
    for user in users {
        grant(&world, user).await?;
    }
    Ok(world)
}

/// A new connection on which this answers 200 soon.
async fn answers(api: &Api, path: &str, headers: &[(&str, &str)]) -> Result<()> {
    let request = api.request(Method::GET, path);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let answer = timeout(SOON, send(request)).await.context("no answer")??;
    ensure!(answer.status == 200, "{answer}");
    Ok(())
}

#[test]
fn a_user_that_opens_connections_without_end_leaves_others_theirs() {
    run(async |env| {
        let mut world = world(env, &["alice", "mallory"]).await?;
        let list = collection("default");
        let (alice, mallory) = (certificate(&world, "alice")?, certificate(&world, "mallory")?);
        let (alice, mallory) = (world.directly(alice)?, world.directly(mallory)?);
        for who in [&alice, &mallory] {
            until("the roles", DEADLINE, async || answers(&Api::new(who)?, &list, &[]).await).await?;
        }
        // On half of the connections a watch goes on, and nothing on the others.
        let watch = format!("{list}?watch=1");
        let opened = stream::iter(0..400).map(async |number| {
            let open = async {
                let hoarder = Hoarder::dial(&mallory, 1 << 20).await?;
                let path = if number % 2 == 0 { &watch } else { &list };
                let head = hoarder.ask(Method::GET, path, None)?.await?;
                anyhow::Ok((hoarder, head))
            };
            timeout(SOON, open).await.context("no answer")?
        });
        let opened: Vec<Result<_>> = opened.buffer_unordered(20).collect().await;
        let proxy =
            world.garden.as_ref().context("a garden")?.pki().front_proxy.client(FRONT_PROXY_USER, &[])?;
        let proxy = world.directly(Credential::Certificate(proxy))?;
        let (nobody, master) = (world.directly(Credential::Anonymous)?, world.as_master()?);
        for _ in 0..5 {
            answers(&Api::new(&alice)?, &list, &[]).await.context("another user")?;
            answers(&Api::new(&proxy)?, &list, &[("X-Remote-User", "alice")])
                .await
                .context("the front proxy")?;
            answers(&Api::new(&nobody)?, "/livez", &[]).await.context("a probe")?;
            answers(&Api::new(&master)?, &list, &[]).await.context("an administrator")?;
        }
        // It has its share, was told so beyond it, and is served where it gives an idle connection up.
        let heads = opened.iter().flatten().map(|(_, head)| head.status().as_u16());
        let (served, refused) = heads.fold((0, 0), |(served, refused), code| match code {
            200 => (served + 1, refused),
            429 => (served, refused + 1),
            _ => (served, refused),
        });
        ensure!(served >= 30 && refused > 0, "{served} were served, {refused} were refused");
        let api = Api::new(&master)?;
        let counted =
            gauge(&api, "apiserver_flowcontrol_rejected_requests_total{flow_schema=\"user\",priority_level=\"connection\"")
                .await?;
        ensure!(counted >= f64::from(refused), "{refused} were refused, {counted} are counted");
        let open = || opened.iter().flatten().filter(|(hoarder, _)| !hoarder.sender.is_closed()).count();
        until("those beyond the share to be ended", DEADLINE, async || {
            let open = open();
            ensure!(open <= 100, "{open} are open");
            Ok(())
        })
        .await?;
        drop(opened);
        until("room for a new one", DEADLINE, async || answers(&Api::new(&mallory)?, &list, &[]).await).await
    });
}

/// A TCP connection from an address of this host.
async fn connect_from(host: [u8; 4], to: &str) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((Ipv4Addr::from(host), 0).into())?;
    Ok(socket.connect(to.parse()?).await?)
}

#[test]
fn a_host_that_opens_connections_without_end_ends_no_handshake_of_another() {
    run(async |env| {
        const MOST: usize = 20;
        let flags = vec![format!("--max-unauthenticated-connections={MOST}")];
        let mut world = World::garden_with(env, flags).await?;
        let access = world.directly(Credential::Anonymous)?;
        let address = authority_of(&access)?.replace("localhost", "127.0.0.1");
        let slow = connect_from([127, 0, 0, 2], &address).await?;
        let mut churned = Vec::new();
        for _ in 0..5 * MOST {
            churned.push(connect_from([127, 0, 0, 1], &address).await?);
        }
        // Those that the server has ended by now are read to their end.
        let mut ended = 0;
        for stream in &mut churned[..4 * MOST] {
            let end = timeout(DEADLINE, stream.read(&mut [0; 16])).await.context("it is kept")?;
            ended += usize::from(matches!(end, Ok(0) | Err(_)));
        }
        ensure!(ended == 4 * MOST, "{ended} were ended");
        let mut tls =
            timeout(SOON, start_tls(&access, &["http/1.1"], slow)).await.context("no handshake")??;
        tls.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        let _ = timeout(SOON, tls.read_to_string(&mut answer)).await.context("no answer")?;
        if !answer.starts_with("HTTP/1.1 200 ") {
            bail!("{answer:?}");
        }
        Ok(())
    });
}
