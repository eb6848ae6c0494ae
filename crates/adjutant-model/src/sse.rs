//! Decodes server-sent events from byte chunks of any size.
//!
//! Owns only the framing; the wire modules interpret the data. Event names are ignored, because all supported
//! APIs repeat them in the data. An event counts only after its blank line has arrived, so a broken
//! connection never yields half an event.
//!
//! Start at [`SseDecoder::push_bytes`]. Data that is complete within one chunk is passed on without copying.

/// The maximum length of a line: 48 MiB. No real event is longer.
pub(crate) const MAX_LINE_BYTES: usize = 48 << 20;

/// Returned for a line that exceeds [`MAX_LINE_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LineTooLong;

/// Splits a byte stream into events.
#[derive(Debug, Default)]
pub(crate) struct SseDecoder {
    /// The start of an incomplete line.
    line: Vec<u8>,
    /// The data of an incomplete event.
    data: Vec<u8>,
    has_data: bool,
    started: bool,
}

impl SseDecoder {
    /// Processes the next bytes and passes the data of every completed event to `take`.
    ///
    /// Stops at the first error of `take` and returns it.
    pub(crate) fn push_bytes<E: From<LineTooLong>>(
        &mut self,
        chunk: &[u8],
        take: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rest = chunk;
        // Data in this chunk that has not been copied yet.
        let mut held: Option<&[u8]> = None;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let (piece, after) = (&rest[..end], &rest[end + 1..]);
            rest = after;
            if self.line.is_empty() {
                self.take_line(piece, &mut held, take)?;
            } else {
                self.line.extend_from_slice(piece);
                let line = std::mem::take(&mut self.line);
                // Copy the older data first, because this line is not part of the chunk.
                self.keep(held.take());
                let mut own = None;
                self.take_line(&line, &mut own, take)?;
                self.keep(own);
                self.line = line;
                self.line.clear();
            }
        }
        self.keep(held);
        if self.line.len() + rest.len() + self.data.len() > MAX_LINE_BYTES {
            return Err(LineTooLong.into());
        }
        self.line.extend_from_slice(rest);
        Ok(())
    }

    fn take_line<'a, E>(
        &mut self,
        line: &'a [u8],
        held: &mut Option<&'a [u8]>,
        take: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let line = if self.started { line } else { line.strip_prefix(BOM).unwrap_or(line) };
        self.started = true;
        if line.is_empty() {
            if let Some(data) = held.take() {
                take(data)?;
            } else if std::mem::take(&mut self.has_data) {
                let data = std::mem::take(&mut self.data);
                take(&data)?;
                self.data = data;
                self.data.clear();
            }
        } else if let Some(value) = line.strip_prefix(b"data") {
            let value = match value.strip_prefix(b":") {
                Some(value) => value.strip_prefix(b" ").unwrap_or(value),
                None if value.is_empty() => value,
                // Another field whose name starts with `data`.
                None => return Ok(()),
            };
            if self.has_data || held.is_some() {
                self.keep(held.take());
                self.keep(Some(value));
            } else {
                *held = Some(value);
            }
        }
        Ok(())
    }

    /// Returns the size of the buffers.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        self.line.capacity() + self.data.capacity()
    }

    /// Copies the data of an incomplete event.
    fn keep(&mut self, held: Option<&[u8]>) {
        let Some(held) = held else { return };
        if self.has_data {
            self.data.push(b'\n');
        }
        self.data.extend_from_slice(held);
        self.has_data = true;
    }
}

const BOM: &[u8] = b"\xEF\xBB\xBF";

#[cfg(test)]
mod tests {
    use super::*;

    fn events(chunks: &[&[u8]]) -> Vec<String> {
        let mut decoder = SseDecoder::default();
        let mut events = Vec::new();
        for chunk in chunks {
            decoder
                .push_bytes::<LineTooLong>(chunk, &mut |data| {
                    events.push(String::from_utf8(data.to_vec()).unwrap());
                    Ok(())
                })
                .unwrap();
        }
        events
    }

    const STREAM: &str = "\u{feff}: hello\n\nevent: a\ndata: {\"ä\":1}\n\ndata:one\r\ndata: two\r\n\r\n\
        database: no\ndata\n\nid: 7\nretry: 1\ndata: last\n\ndata: unfinished\n";

    #[test]
    fn events_are_read_as_the_standard_says() {
        let expected = ["{\"ä\":1}", "one\ntwo", "", "last"];
        assert_eq!(events(&[STREAM.as_bytes()]), expected);
    }

    #[test]
    fn every_cut_in_two_and_every_single_byte_give_the_same_events() {
        let whole = events(&[STREAM.as_bytes()]);
        let bytes = STREAM.as_bytes();
        for cut in 0..=bytes.len() {
            assert_eq!(events(&[&bytes[..cut], &bytes[cut..]]), whole, "cut at {cut}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(events(&single), whole);
    }
}
