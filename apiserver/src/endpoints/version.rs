//! `/version`.

use http::StatusCode;
use serde_json::json;

use super::Answer;
use crate::wire;

/// What this server is, in the form of `version.Info`.
pub(super) fn version() -> Answer {
    let version = env!("CARGO_PKG_VERSION");
    let mut parts = version.split('.');
    let mut part = || parts.next().unwrap_or("0").to_owned();
    let info = json!({
        "major": part(),
        "minor": part(),
        "gitVersion": format!("v{version}"),
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    });
    Ok(wire::whole(StatusCode::OK, info.to_string()))
}
