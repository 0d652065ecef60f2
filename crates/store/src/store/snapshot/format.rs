//! The bytes of a snapshot.
//!
//! ```text
//!   header:  "zfoldsnp"  version u32  page length u32
//!            label: length u32, bytes
//!            codecs: count u32, each: text length u32, text, dictionary length u32, dictionary
//!   page:    key u64  kind u8  priority u8  zero u16  length u32  hash u64  kept bytes
//!   end:     key of all ones, kind 0, zeros, length 8, hash, number of pages u64
//! ```
//!
//! Numbers are little-endian. A page's hash is of its kept bytes, seeded with its key; the end's
//! hash is of all bytes before the end. Dictionaries are part of the file, so that it can be read
//! whatever the reader was set up with. A page that was lost is one that no codec decodes: a single
//! byte, zero, which says that it is compressed.

use std::io::{Read, Write};

use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use super::error::{LABEL_MAX, SnapshotError, SnapshotReport};
use crate::codec::{CodecError, CodecSpec, Dictionary};
use crate::entry::{Kind, State};
use crate::options::CodecChoice;

const MAGIC: &[u8; 8] = b"zfoldsnp";
const VERSION: u32 = 1;
/// Longest dictionary and codec name that are believed, in bytes.
const DICTIONARY_MAX: usize = 16 << 20;
const NAME_MAX: usize = 64;
const END: u64 = u64::MAX;

/// A snapshot's description of itself.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Header {
    /// Length of its pages in bytes.
    pub page_len: usize,
    /// The owner's label.
    pub label: Vec<u8>,
    /// The codecs of its pages.
    pub codecs: Vec<CodecChoice>,
}

/// A page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    pub(super) key: u64,
    pub(super) kind: Kind,
    /// Which codec of the header compressed it.
    pub(super) priority: u8,
    /// The stored form.
    pub(super) kept: &'a [u8],
}

impl Record<'static> {
    /// Returns what stands for a page that cannot be read.
    pub(super) fn lost(key: u64) -> Self {
        Self { key, kind: Kind::Compressed, priority: 0, kept: &[0] }
    }
}

impl Record<'_> {
    /// Returns whether the page was lost.
    pub(super) fn is_lost(&self) -> bool {
        self.kind == Kind::Compressed && self.kept == [0]
    }
}

/// The fixed part of a page or of the end.
struct Head {
    key: u64,
    kind: u8,
    priority: u8,
    len: u32,
    hash: u64,
}

impl Head {
    const BYTES: usize = 24;

    fn end(hash: u64) -> Self {
        Self { key: END, kind: 0, priority: 0, len: 8, hash }
    }

    fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.key.to_le_bytes());
        bytes[8] = self.kind;
        bytes[9] = self.priority;
        bytes[12..16].copy_from_slice(&self.len.to_le_bytes());
        bytes[16..].copy_from_slice(&self.hash.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let word = |at: usize| bytes[at..at + 8].try_into().expect("eight bytes");
        Self {
            key: u64::from_le_bytes(word(0)),
            kind: bytes[8],
            priority: bytes[9],
            len: (u64::from_le_bytes(word(8)) >> 32) as u32,
            hash: u64::from_le_bytes(word(16)),
        }
    }
}

/// Writes a snapshot.
pub(super) struct Writer<'a> {
    out: &'a mut dyn Write,
    hash: Xxh3,
    report: SnapshotReport,
}

impl<'a> Writer<'a> {
    pub(super) fn begin(out: &'a mut dyn Write, header: &Header) -> Result<Self, SnapshotError> {
        let mut writer = Self { out, hash: Xxh3::new(), report: SnapshotReport::default() };
        writer.put(MAGIC)?;
        writer.put(&VERSION.to_le_bytes())?;
        writer.put(&(header.page_len as u32).to_le_bytes())?;
        writer.put_sized(&header.label)?;
        writer.put(&(header.codecs.len() as u32).to_le_bytes())?;
        for codec in &header.codecs {
            writer.put_sized(codec.spec.to_string().as_bytes())?;
            writer.put_sized(codec.dictionary.as_ref().map_or(&[], Dictionary::bytes))?;
        }
        Ok(writer)
    }

    pub(super) fn page(&mut self, record: &Record<'_>) -> Result<(), SnapshotError> {
        let &Record { key, kind, priority, kept } = record;
        let hash = xxh3_64_with_seed(kept, key);
        let head = Head { key, kind: kind as u8, priority, len: kept.len() as u32, hash };
        self.put(&head.to_bytes())?;
        self.put(kept)?;
        self.report.pages += 1;
        self.report.lost_pages += u64::from(record.is_lost());
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<SnapshotReport, SnapshotError> {
        let end = Head::end(self.hash.digest());
        self.put(&end.to_bytes())?;
        self.put(&self.report.pages.to_le_bytes())?;
        self.out.flush()?;
        Ok(self.report)
    }

    fn put_sized(&mut self, bytes: &[u8]) -> Result<(), SnapshotError> {
        self.put(&(bytes.len() as u32).to_le_bytes())?;
        self.put(bytes)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), SnapshotError> {
        self.out.write_all(bytes)?;
        self.hash.update(bytes);
        self.report.bytes += bytes.len() as u64;
        Ok(())
    }
}

/// Reads a snapshot, and believes nothing that it has not checked.
pub(super) struct Reader<'a> {
    input: &'a mut dyn Read,
    hash: Xxh3,
    report: SnapshotReport,
    page_len: usize,
    codecs: usize,
    kept: Vec<u8>,
}

impl<'a> Reader<'a> {
    pub(super) fn begin(input: &'a mut dyn Read) -> Result<(Self, Header), SnapshotError> {
        let (report, kept) = (SnapshotReport::default(), Vec::new());
        let mut reader = Self { input, hash: Xxh3::new(), report, page_len: 0, codecs: 0, kept };
        let magic: [u8; 8] = reader.take("its beginning").map_err(|error| match error {
            SnapshotError::Damaged(_) => SnapshotError::Foreign,
            error => error,
        })?;
        if magic != *MAGIC {
            return Err(SnapshotError::Foreign);
        }
        let version = reader.number()?;
        if version != VERSION {
            return Err(SnapshotError::Version(version));
        }
        let page_len = reader.number()? as usize;
        let label = reader.sized(LABEL_MAX)?;
        let codecs = reader.number()? as usize;
        if !page_len.is_power_of_two() || page_len > State::LEN_MAX || codecs > State::CODECS_MAX {
            return Err(HEADER);
        }
        let codecs: Vec<CodecChoice> =
            (0..codecs).map(|_| reader.codec(page_len)).collect::<Result<_, _>>()?;
        reader.page_len = page_len;
        reader.codecs = codecs.len();
        Ok((reader, Header { page_len, label, codecs }))
    }

    fn codec(&mut self, page_len: usize) -> Result<CodecChoice, SnapshotError> {
        let name = String::from_utf8(self.sized(NAME_MAX)?).map_err(|_| HEADER)?;
        // A codec of earlier versions, which wrote blocks of LZ4.
        let spec: Result<CodecSpec, _> = name.replacen("lz4hc", "lz4", 1).parse();
        let spec = spec.map_err(|error| match error {
            CodecError::NotBuilt(_) => SnapshotError::Codec(error),
            _ => HEADER,
        })?;
        let dictionary = self.sized(DICTIONARY_MAX)?;
        let dictionary = (!dictionary.is_empty()).then(|| Dictionary::new(dictionary));
        let dictionary = dictionary.transpose().map_err(|_| HEADER)?;
        spec.context_with(page_len, dictionary.as_ref()).map_err(|_| HEADER)?;
        Ok(CodecChoice { spec, dictionary })
    }

    /// Returns the next page, or `None` at a correct end.
    pub(super) fn next(&mut self) -> Result<Option<Record<'_>>, SnapshotError> {
        let sum = self.hash.digest();
        let bytes = self.take("between two pages")?;
        let head = Head::from_bytes(&bytes);
        if head.key == END {
            let pages = u64::from_le_bytes(self.take("its end")?);
            let right = bytes == Head::end(sum).to_bytes() && pages == self.report.pages;
            return if right {
                Ok(None)
            } else {
                Err(SnapshotError::Damaged("the checksum at its end"))
            };
        }
        let kind = match head.kind {
            1 => Kind::Same,
            2 if usize::from(head.priority) < self.codecs => Kind::Compressed,
            3 => Kind::Raw,
            _ => return Err(SnapshotError::Damaged("a page's kind")),
        };
        let len = head.len as usize;
        if len > self.page_len.max(size_of::<u64>()) {
            return Err(SnapshotError::Damaged("a page's length"));
        }
        let mut kept = std::mem::take(&mut self.kept);
        kept.resize(len, 0);
        self.fill(&mut kept, "inside a page")?;
        self.kept = kept;
        if xxh3_64_with_seed(&self.kept, head.key) != head.hash {
            return Err(SnapshotError::Damaged("a page's checksum"));
        }
        let record = Record { key: head.key, kind, priority: head.priority, kept: &self.kept };
        self.report.pages += 1;
        self.report.lost_pages += u64::from(record.is_lost());
        Ok(Some(record))
    }

    pub(super) fn report(&self) -> SnapshotReport {
        self.report
    }

    fn number(&mut self) -> Result<u32, SnapshotError> {
        Ok(u32::from_le_bytes(self.take("its header")?))
    }

    fn sized(&mut self, max: usize) -> Result<Vec<u8>, SnapshotError> {
        let len = self.number()? as usize;
        if len > max {
            return Err(HEADER);
        }
        let mut bytes = vec![0; len];
        self.fill(&mut bytes, "its header")?;
        Ok(bytes)
    }

    fn take<const N: usize>(&mut self, place: &'static str) -> Result<[u8; N], SnapshotError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes, place)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8], place: &'static str) -> Result<(), SnapshotError> {
        self.input.read_exact(bytes).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => SnapshotError::Damaged(place),
            _ => SnapshotError::Io(error),
        })?;
        self.hash.update(bytes);
        self.report.bytes += bytes.len() as u64;
        Ok(())
    }
}

const HEADER: SnapshotError = SnapshotError::Damaged("its header");
