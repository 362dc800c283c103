//! Free ports that stay free: reserved for this process against all other test processes of the machine. And connections to ports.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::sync::Mutex;

use anyhow::{Context, Result, bail};
use tokio::net::TcpSocket;

/// First reserved port, and one past the last: below the range from which the kernel takes ports for outgoing connections.
const FIRST: u16 = 12_000;
const END: u16 = 32_000;
/// Ports that one lock file stands for.
const BLOCK: u16 = 50;

/// A block of ports, ours as long as its file is locked: the kernel gives the lock back whenever the process ends.
struct Block {
    next: u16,
    end: u16,
    _lock: File,
}

/// What this process holds. Blocks are kept until its end: a server that is started again wants its old port.
static HELD: Mutex<Vec<Block>> = Mutex::new(Vec::new());

/// A port on 127.0.0.1 that nobody listens on and no other test will be given.
///
/// Errors: when all ports are taken or the lock files cannot be written.
pub fn reserve() -> Result<u16> {
    let mut held = HELD.lock().ok().context("a thread died while it reserved a port")?;
    loop {
        let Some(block) = held.last_mut().filter(|block| block.next < block.end) else {
            held.push(lock_block()?);
            continue;
        };
        let port = block.next;
        block.next += 1;
        if is_free(port)? {
            return Ok(port);
        }
    }
}

/// Whether nobody listens on a port. It is bound and not listened on: a process that is just being started holds whatever is open here
/// for a moment, and a socket that listens would keep others from the port for as long.
fn is_free(port: u16) -> Result<bool> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    Ok(socket.bind((Ipv4Addr::LOCALHOST, port).into()).is_ok())
}

fn lock_block() -> Result<Block> {
    // By user: nobody can lock the files of another one.
    let user = rustix::process::getuid().as_raw();
    let dir = std::env::temp_dir().join(format!("repot-testbed-ports-{user}"));
    fs::create_dir_all(&dir).with_context(|| format!("failed to make {}", dir.display()))?;
    for first in (FIRST..END).step_by(usize::from(BLOCK)) {
        let lock = File::options().create(true).append(true).open(dir.join(first.to_string()))?;
        if lock.try_lock().is_ok() {
            return Ok(Block { next: first, end: first + BLOCK, _lock: lock });
        }
    }
    bail!("all ports from {FIRST} to {END} are reserved by other tests")
}

/// Whether the other side keeps a connection, on which it never writes.
pub fn is_open(stream: &tokio::net::TcpStream) -> bool {
    matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_on_which_somebody_listens_is_not_free() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("its address").port();
        assert!(!is_free(port).expect("a socket"));
        drop(listener);
        assert!(is_free(port).expect("a socket"));
    }

    #[test]
    fn never_gives_a_port_twice_across_blocks() {
        let mut ports: Vec<u16> = (0..BLOCK + 5).map(|_| reserve().expect("a port is free")).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), usize::from(BLOCK) + 5);
    }
}
