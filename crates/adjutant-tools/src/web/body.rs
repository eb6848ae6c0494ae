//! The body of a response, decompressed while it arrives and cut at the size limit.

use std::io::{self, Write};

use flate2::write::MultiGzDecoder;

use crate::web::WebError;

/// The received part of a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ResponseBody {
    pub(crate) bytes: Vec<u8>,
    /// Whether the body exceeded the limit.
    pub(crate) is_cut: bool,
}

/// Reads a body piece by piece; holds at most the limit in decoded bytes.
pub(crate) struct BodyReader {
    decoder: BodyDecoder,
    /// The number of received bytes. It is limited too, because compressed data that is larger than its
    /// content is an attack.
    received: usize,
    max: usize,
}

enum BodyDecoder {
    Plain(CappedBuffer),
    Gzip(Box<MultiGzDecoder<CappedBuffer>>),
}

/// A buffer that refuses bytes beyond its limit, which stops the decoder.
struct CappedBuffer {
    bytes: Vec<u8>,
    max: usize,
    is_full: bool,
}

impl Write for CappedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.max - self.bytes.len();
        if bytes.len() > room {
            self.is_full = true;
        }
        if room == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let taken = bytes.len().min(room);
        self.bytes.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl BodyReader {
    /// Starts a body of at most `max` decoded bytes in the given content encoding.
    pub(crate) fn new(encoding: Option<&str>, max: usize) -> Result<Self, WebError> {
        let sink = CappedBuffer { bytes: Vec::new(), max, is_full: false };
        let name = encoding.map(|name| name.trim().to_ascii_lowercase());
        let decoder = match name.as_deref() {
            None | Some("" | "identity") => BodyDecoder::Plain(sink),
            Some("gzip" | "x-gzip") => BodyDecoder::Gzip(Box::new(MultiGzDecoder::new(sink))),
            Some(other) => return Err(WebError::Encoding(crate::args::brief(other))),
        };
        Ok(Self { decoder, received: 0, max })
    }

    /// Processes a piece and returns whether more is wanted.
    pub(crate) fn take(&mut self, piece: &[u8]) -> io::Result<bool> {
        self.received = self.received.saturating_add(piece.len());
        let written = match &mut self.decoder {
            BodyDecoder::Plain(sink) => sink.write_all(piece),
            BodyDecoder::Gzip(decoder) => decoder.write_all(piece),
        };
        match written {
            _ if self.sink().is_full => Ok(false),
            Err(error) => Err(error),
            Ok(()) => Ok(self.received <= self.max.saturating_mul(2)),
        }
    }

    /// Finishes the body. If all of it was received, decompression must be complete too.
    pub(crate) fn finish(mut self, is_complete: bool) -> io::Result<ResponseBody> {
        let ended = match &mut self.decoder {
            BodyDecoder::Gzip(decoder) if is_complete && self.received > 0 => decoder.try_finish(),
            BodyDecoder::Gzip(_) | BodyDecoder::Plain(_) => Ok(()),
        };
        let sink = match &mut self.decoder {
            BodyDecoder::Plain(sink) => sink,
            BodyDecoder::Gzip(decoder) => decoder.get_mut(),
        };
        if !sink.is_full {
            ended?;
        }
        Ok(ResponseBody {
            bytes: std::mem::take(&mut sink.bytes),
            is_cut: sink.is_full || !is_complete,
        })
    }

    fn sink(&self) -> &CappedBuffer {
        match &self.decoder {
            BodyDecoder::Plain(sink) => sink,
            BodyDecoder::Gzip(decoder) => decoder.get_ref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    #[test]
    fn a_bomb_is_never_held_beyond_the_cap() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        for _ in 0..64 {
            encoder.write_all(&vec![0; 1 << 20]).unwrap();
        }
        let bomb = encoder.finish().unwrap();
        let mut intake = BodyReader::new(Some("gzip"), 100_000).unwrap();
        assert!(!intake.take(&bomb).unwrap());
        let body = intake.finish(false).unwrap();
        assert_eq!((body.bytes.len(), body.is_cut), (100_000, true));
        assert!(body.bytes.capacity() <= 200_000, "{}", body.bytes.capacity());
    }

    #[test]
    fn a_body_of_exactly_the_cap_is_whole() {
        let mut intake = BodyReader::new(None, 3).unwrap();
        assert!(intake.take(b"ab").unwrap());
        assert!(intake.take(b"c").unwrap());
        assert_eq!(
            intake.finish(true).unwrap(),
            ResponseBody { bytes: b"abc".to_vec(), is_cut: false }
        );
    }
}
