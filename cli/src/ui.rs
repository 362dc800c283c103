//! `repot ui`: the web page for operators.

use std::{
    fs::Permissions,
    io::Write,
    os::unix::fs::PermissionsExt,
    process::{ExitCode, Stdio},
};

use anyhow::Context;
use clap::Args;
use repot_console::{
    garden::Garden,
    ui::{Options, Server},
};
use tempfile::NamedTempFile;
use tokio::process::Command;

use crate::{garden::GardenFlags, run, webhook::default_settings};

/// Show Shoots, migrations, isolations and hosted etcds in a browser, as they change, and steer migrations.
///
/// The page is served on 127.0.0.1 until Ctrl-C, and acts with the rights of your kubeconfig. Its link has a token: who has the link has
/// these rights, as long as this program runs. The browser is opened where there is one; else open the link that is printed.
///
///     repot ui --kubeconfig garden.yaml
///     kubectl repot ui --no-open --port 8686
///     ssh -L 8686:127.0.0.1:8686 jump-host kubectl repot ui --no-open --port 8686
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Flags {
    #[command(flatten)]
    garden: GardenFlags,
    /// The one namespace that is shown, for rights that end there [default: all]
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Port on 127.0.0.1; 0 takes any free one
    #[arg(long, default_value_t = 0, value_name = "N")]
    port: u16,
    /// Print the link and open no browser
    #[arg(long)]
    no_open: bool,
}

/// Serves until a signal.
pub async fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    let stop = run::stop_on_signals()?;
    let config = flags.garden.config().await?;
    let name = config.cluster_url.to_string();
    let client = kube::Client::try_from(config).context("failed to make a client of the garden")?;
    let options =
        Options { port: flags.port, name, namespace: flags.namespace, settings: default_settings() };
    let server = Server::bind(Garden::new(client), options).await.with_context(|| match flags.port {
        0 => "failed to serve the page".to_owned(),
        port => format!("port {port} cannot be used; choose another with --port, or leave it out"),
    })?;
    let link = server.link();
    writeln!(std::io::stdout(), "ready {link}").context("failed to write to standard output")?;
    eprintln!("repot: who has this link acts with your rights; Ctrl-C ends it");
    // Kept until the end: a browser may read it late.
    let _opened = if flags.no_open { None } else { open(&link) };
    server.serve(stop).await;
    Ok(ExitCode::SUCCESS)
}

/// Opens a file in the browser that leads to the link. The link itself is no argument of a program: every user of this machine sees those.
fn open(link: &str) -> Option<NamedTempFile> {
    let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let file =
        opening_file(link).inspect_err(|error| tracing::debug!(%error, "no file for the browser")).ok()?;
    let command = Command::new(opener)
        .arg(file.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match command {
        Ok(_) => Some(file),
        Err(error) => {
            tracing::debug!(%error, opener, "no browser was opened");
            None
        }
    }
}

/// A page that only this user can read.
fn opening_file(link: &str) -> std::io::Result<NamedTempFile> {
    let mode = Permissions::from_mode(0o600);
    let mut file =
        tempfile::Builder::new().prefix("repot-ui-").suffix(".html").permissions(mode).tempfile()?;
    write!(
        file,
        "<!doctype html><meta charset=utf-8><meta name=referrer content=no-referrer><title>Repot</title>\
         <meta http-equiv=refresh content=\"0;url={link}\"><p><a href=\"{link}\">Open the page of Repot</a></p>"
    )?;
    file.flush()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_that_leads_to_the_link_is_for_this_user_alone() {
        let file = opening_file("http://127.0.0.1:1/?token=secret").expect("a file");
        let mode = file.as_file().metadata().expect("metadata").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let text = std::fs::read_to_string(file.path()).expect("text");
        assert!(text.contains("content=\"0;url=http://127.0.0.1:1/?token=secret\""));
        let path = file.path().to_owned();
        drop(file);
        assert!(!path.exists());
    }
}
