//! As much of gRPC as a proxy has to know: deadlines, and how a call ends.

use std::time::Duration;

use hyper::{
    HeaderMap,
    header::{HeaderName, HeaderValue},
};

const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// How a call ended, where it was not well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Status {
    code: Code,
    /// Percent-encoded as on the wire: printable ASCII without `%`.
    message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    DeadlineExceeded,
    ResourceExhausted,
    FailedPrecondition,
    Internal,
    Unavailable,
}

impl Code {
    fn number(self) -> &'static str {
        match self {
            Self::DeadlineExceeded => "4",
            Self::ResourceExhausted => "8",
            Self::FailedPrecondition => "9",
            Self::Internal => "13",
            Self::Unavailable => "14",
        }
    }
}

impl Status {
    pub(super) fn new(code: Code, message: impl AsRef<str>) -> Self {
        let plain = |c: char| if (c.is_ascii_graphic() || c == ' ') && c != '%' { c } else { '?' };
        Self { code, message: message.as_ref().chars().map(plain).collect() }
    }

    pub(super) fn unavailable(message: impl AsRef<str>) -> Self {
        Self::new(Code::Unavailable, message)
    }

    pub(super) fn past_deadline() -> Self {
        Self::new(Code::DeadlineExceeded, "gateway: the deadline of the call has passed")
    }

    /// What ends a stream that has begun.
    pub(super) fn trailers(&self) -> HeaderMap {
        let mut trailers = HeaderMap::new();
        trailers.insert(STATUS, HeaderValue::from_static(self.code.number()));
        if let Ok(message) = HeaderValue::from_str(&self.message) {
            trailers.insert(MESSAGE, message);
        }
        trailers
    }
}

/// Whether the messages of a call may be compressed.
pub(super) fn is_compressed(headers: &HeaderMap) -> bool {
    headers.get("grpc-encoding").is_some_and(|encoding| encoding != "identity")
}

/// What a server says that answered at once that it did not do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure<'a> {
    pub unavailable: bool,
    pub message: &'a str,
}

/// Whether headers, or trailers, say that it was not done.
pub(super) fn failure(headers: &HeaderMap) -> Option<Failure<'_>> {
    let status = headers.get(STATUS).filter(|status| *status != "0")?;
    let message = headers.get(MESSAGE).and_then(|message| message.to_str().ok()).unwrap_or_default();
    Some(Failure { unavailable: status == Code::Unavailable.number(), message })
}

/// How long the client waits, if it says so.
pub(super) fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(TIMEOUT)?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let many = if digits.len() <= 8 { digits.parse::<u64>().ok()? } else { return None };
    Some(match unit {
        "H" => Duration::from_secs(many * 3600),
        "M" => Duration::from_secs(many * 60),
        "S" => Duration::from_secs(many),
        "m" => Duration::from_millis(many),
        "u" => Duration::from_micros(many),
        "n" => Duration::from_nanos(many),
        _ => return None,
    })
}

/// Tells the server what is left of the time.
pub(super) fn set_timeout(headers: &mut HeaderMap, left: Duration) {
    // Eight digits at most.
    let text = match left.as_millis() {
        millis @ ..100_000_000 => format!("{millis}m"),
        _ => format!("{}S", left.as_secs().min(99_999_999)),
    };
    if let Ok(value) = HeaderValue::from_str(&text) {
        headers.insert(TIMEOUT, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_read_and_written() {
        let mut headers = HeaderMap::new();
        assert_eq!(timeout(&headers), None);
        for (text, expected) in [
            ("1H", Some(Duration::from_secs(3600))),
            ("2S", Some(Duration::from_secs(2))),
            ("4999999u", Some(Duration::from_micros(4_999_999))),
            ("99999999n", Some(Duration::from_nanos(99_999_999))),
            ("123456789m", None),
            ("m", None),
            ("", None),
            ("5x", None),
        ] {
            headers.insert(TIMEOUT, HeaderValue::from_static(text));
            assert_eq!(timeout(&headers), expected, "{text}");
        }
        for left in [Duration::from_millis(4_321), Duration::from_secs(360_000)] {
            set_timeout(&mut headers, left);
            assert_eq!(timeout(&headers), Some(left));
        }
    }
}
