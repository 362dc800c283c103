//! The elements of a list of JSON objects, one after another, each as one slice: parsing a slice is several times faster than
//! parsing a stream. What is between the braces is for the parser to judge.

use std::io::Read;

use memchr::memchr2;

use super::Error;

const BUFFER: usize = 256 << 10;

/// A list that is being read.
pub(super) struct Elements<R> {
    inner: R,
    buffer: Vec<u8>,
    /// Where the element begins that is being read, where we are, and where what was read ends.
    start: usize,
    at: usize,
    end: usize,
    begun: bool,
    /// The longest element.
    limit: u64,
}

impl<R: Read> Elements<R> {
    pub(super) fn new(inner: R, limit: u64) -> Self {
        Self { inner, buffer: vec![0; BUFFER], start: 0, at: 0, end: 0, begun: false, limit }
    }

    /// The next element; `None` after the last one, when everything was read to its end.
    ///
    /// # Errors
    /// [`Error::Events`], [`Error::EventSize`], and those of the reader.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, Error> {
        let mut byte = self.peek()?;
        match (self.begun, byte) {
            (false, Some(b'[')) => {
                self.begun = true;
                byte = self.step()?;
                if byte == Some(b']') {
                    return self.finish();
                }
            }
            (true, Some(b',')) => byte = self.step()?,
            (true, Some(b']')) => return self.finish(),
            (false, other) => return Err(unexpected(other, "a list")),
            (true, other) => return Err(unexpected(other, "a comma or the end of the list")),
        }
        if byte != Some(b'{') {
            return Err(unexpected(byte, "an object"));
        }
        self.start = self.at;
        self.skip_object()?;
        Ok(Some(&self.buffer[self.start..self.at]))
    }

    /// Behind the list there is nothing.
    fn finish(&mut self) -> Result<Option<&[u8]>, Error> {
        match self.step()? {
            None => Ok(None),
            byte => Err(unexpected(byte, "the end")),
        }
    }

    /// The byte after this one that is no space.
    fn step(&mut self) -> Result<Option<u8>, Error> {
        self.at += 1;
        self.peek()
    }

    /// The next byte that is no space; nothing before it is needed any more.
    fn peek(&mut self) -> Result<Option<u8>, Error> {
        loop {
            self.start = self.at;
            match self.byte()? {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                other => return Ok(other),
            }
        }
    }

    fn byte(&mut self) -> Result<Option<u8>, Error> {
        Ok(if self.at < self.end || self.fill()? { Some(self.buffer[self.at]) } else { None })
    }

    fn skip_object(&mut self) -> Result<(), Error> {
        let mut depth = 0_usize;
        loop {
            let byte = self.byte()?;
            self.at += 1;
            match byte {
                Some(b'"') => self.skip_text()?,
                Some(b'{' | b'[') => depth += 1,
                Some(b'}' | b']') => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return Ok(());
                    }
                }
                Some(_) => {}
                None => return Err(unexpected(None, "the rest of an event")),
            }
        }
    }

    fn skip_text(&mut self) -> Result<(), Error> {
        loop {
            let found = memchr2(b'"', b'\\', &self.buffer[self.at..self.end]);
            match found.map(|offset| (offset, self.buffer[self.at + offset])) {
                Some((offset, b'"')) => {
                    self.at += offset + 1;
                    return Ok(());
                }
                Some((offset, _)) => {
                    self.at += offset + 1;
                    self.byte()?.ok_or_else(|| unexpected(None, "the rest of a text"))?;
                    self.at += 1;
                }
                None => {
                    self.at = self.end;
                    if !self.fill()? {
                        return Err(unexpected(None, "the rest of a text"));
                    }
                }
            }
        }
    }

    /// Reads on, and keeps the element that is being read; false when nothing more comes.
    fn fill(&mut self) -> Result<bool, Error> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.at, self.end) = (self.at - self.start, self.end - self.start);
        self.start = 0;
        if self.end as u64 > self.limit {
            return Err(Error::EventSize { limit: self.limit });
        }
        if self.end == self.buffer.len() {
            self.buffer.resize(self.end * 2, 0);
        }
        let count = loop {
            match self.inner.read(&mut self.buffer[self.end..]) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                other => break other.map_err(Error::of)?,
            }
        };
        self.end += count;
        Ok(self.at < self.end)
    }
}

fn unexpected(found: Option<u8>, wanted: &str) -> Error {
    Error::Events(match found {
        Some(byte) => format!("{:?} is where {wanted} should be", char::from(byte)),
        None => format!("it ends where {wanted} should be"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, piece: usize) -> Result<Vec<String>, Error> {
        struct Pieces<'a>(&'a [u8], usize);
        impl Read for Pieces<'_> {
            fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
                let count = self.1.min(out.len());
                (&mut self.0).take(count as u64).read(out)
            }
        }
        let mut elements = Elements::new(Pieces(text.as_bytes(), piece), 1000);
        let mut all = Vec::new();
        while let Some(element) = elements.next()? {
            all.push(String::from_utf8_lossy(element).into_owned());
        }
        Ok(all)
    }

    #[test]
    fn elements_come_as_they_are() {
        let text = " [ {\"a\": [1, {\"b\": \"}]\\\"{\\\\\"}]} ,\n{} , {\"c\":\"d\"}\t] \n";
        for piece in 1..40 {
            let found = read(text, piece).expect("a list");
            assert_eq!(found, ["{\"a\": [1, {\"b\": \"}]\\\"{\\\\\"}]}", "{}", "{\"c\":\"d\"}"]);
        }
        assert!(read("[]", 1).expect("a list").is_empty());
    }

    #[test]
    fn what_is_no_list_of_objects_is_refused() {
        for text in
            ["", "{}", "[", "[,{}]", "[{}", "[{},]", "[{} {}]", "[1]", "[{}]x", "[{\"a", "[{\"a\\", "[[{}]]"]
        {
            for piece in [1, 100] {
                assert!(matches!(read(text, piece), Err(Error::Events(_))), "{text:?}");
            }
        }
        let long = format!("[{{\"a\":\"{}\"}}]", "x".repeat(300_000));
        assert!(matches!(read(&long, 100_000), Err(Error::EventSize { limit: 1000 })));
    }
}
