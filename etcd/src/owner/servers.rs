//! Whom to ask.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

const PORT: u16 = 53;
const FILE: &str = "/etc/resolv.conf";

/// An address with a port, or without one for port 53.
pub(super) fn parse(text: &str) -> Option<SocketAddr> {
    let plain = |text: &str| text.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, PORT));
    text.parse().ok().or_else(|| plain(text))
}

/// Those of this machine. Read each time: they change, and a file is cheap beside a question.
pub(super) fn of_this_machine() -> io::Result<Vec<SocketAddr>> {
    let servers = read(&std::fs::read_to_string(FILE)?);
    if servers.is_empty() {
        return Err(io::Error::other(format!("{FILE} names no server")));
    }
    Ok(servers)
}

fn read(text: &str) -> Vec<SocketAddr> {
    let words = text.lines().map(str::split_whitespace);
    words
        .filter_map(|mut words| words.next().filter(|word| *word == "nameserver").and(words.next()))
        .filter_map(parse)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read_from_files_and_texts() {
        let text =
            "# nameserver 1.1.1.1\nsearch a.org\nnameserver 10.0.0.10\n nameserver  ::1 # it\nnameserver\n";
        let all: Vec<String> = read(text).iter().map(ToString::to_string).collect();
        assert_eq!(all, ["10.0.0.10:53", "[::1]:53"]);
        assert_eq!(parse("127.0.0.1:5353").map(|at| at.port()), Some(5353));
        assert_eq!(parse("localhost:53"), None);
    }
}
