//! Prints a Markdown table of what each codec achieves on memory pages: compression ratio,
//! nanoseconds per page and working memory.
//!
//! ```text
//! cargo run --release -p zfold-store --example codec_table [CODEC | FILE]...
//! ```
//!
//! A codec is written `zstd` or `zstd:3`; without any, the defaults and a range of zstd levels are
//! measured. A file holds raw pages of 4096 bytes, or is a Zstandard frame of them if its name ends
//! in `.zst`; without any, the corpora of this repository are measured.
//!
//! A page that does not compress is stored as it is. Every round runs every codec over every file
//! on one thread, and the median over the rounds is printed: a disturbance of the machine spoils a
//! round, not a codec.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{env, fs};

use zfold_store::{Codec, CodecSpec};

const PAGE_LEN: usize = 4096;
const ROUNDS: usize = 15;
const CORPORA: [&str; 5] = ["cc1", "node", "numpy", "postgres", "rustc"];
const CODECS: [&str; 11] = [
    "lz4", "lz4hc", "zstd:-5", "zstd:-3", "zstd:-1", "zstd:1", "zstd:2", "zstd:3", "zstd:6",
    "deflate", "lzo",
];

/// A file of raw pages.
struct Image {
    name: String,
    bytes: Vec<u8>,
}

/// A codec and what has been measured of it.
struct Row {
    spec: CodecSpec,
    codec: Box<dyn Codec>,
    /// Stored bytes of each image.
    stored: Vec<usize>,
    /// Nanoseconds per page of each round.
    compress: Vec<u64>,
    decompress: Vec<u64>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let (specs, images) = arguments()?;
    let mut rows = Vec::new();
    for spec in specs {
        rows.push(Row::new(spec)?);
    }
    for _ in 0..ROUNDS {
        for row in &mut rows {
            row.run(&images)?;
        }
    }
    print_table(&mut rows, &images);
    Ok(())
}

/// Returns what the arguments ask to measure, and everything where they ask for nothing.
fn arguments() -> Result<(Vec<CodecSpec>, Vec<Image>), Box<dyn Error>> {
    let (mut specs, mut images) = (Vec::new(), Vec::new());
    for argument in env::args().skip(1) {
        match argument.parse() {
            Ok(spec) => specs.push(spec),
            Err(_) => images.push(load(Path::new(&argument))?),
        }
    }
    if specs.is_empty() {
        for codec in CODECS {
            specs.push(codec.parse()?);
        }
    }
    if images.is_empty() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus");
        for corpus in CORPORA {
            images.push(load(&directory.join(format!("{corpus}.pages.zst")))?);
        }
    }
    Ok((specs, images))
}

/// Reads a file of pages, unpacking it if its name says so. Bytes after the last full page are
/// ignored.
fn load(path: &Path) -> Result<Image, String> {
    let explain = |reason: &str| format!("{}: {reason}", path.display());
    let mut bytes = fs::read(path).map_err(|error| explain(&error.to_string()))?;
    if path.extension().is_some_and(|extension| extension == "zst") {
        bytes = unpack(&bytes).map_err(explain)?;
    }
    bytes.truncate(bytes.len() / PAGE_LEN * PAGE_LEN);
    if bytes.is_empty() {
        return Err(explain("holds no page"));
    }
    let file_name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = file_name.split('.').next().unwrap_or_default().to_owned();
    Ok(Image { name, bytes })
}

/// Decompresses a Zstandard frame that tells its content size.
fn unpack(frame: &[u8]) -> Result<Vec<u8>, &'static str> {
    let len = zstd_safe::get_frame_content_size(frame).ok().flatten();
    let len = len.and_then(|len| usize::try_from(len).ok());
    let mut bytes = vec![0; len.ok_or("is not a Zstandard frame with a content size")?];
    zstd_safe::decompress(&mut bytes[..], frame).map_err(zstd_safe::get_error_name)?;
    Ok(bytes)
}

impl Row {
    fn new(spec: CodecSpec) -> Result<Self, Box<dyn Error>> {
        let codec = spec.context(PAGE_LEN)?;
        Ok(Self { spec, codec, stored: Vec::new(), compress: Vec::new(), decompress: Vec::new() })
    }

    /// Measures one round over all images.
    fn run(&mut self, images: &[Image]) -> Result<(), Box<dyn Error>> {
        let (mut compress, mut decompress) = (Duration::ZERO, Duration::ZERO);
        self.stored.clear();
        for image in images {
            let mut slots = vec![1; image.bytes.len()];
            let mut lens = vec![0; image.bytes.len() / PAGE_LEN];
            let mut back = vec![1; image.bytes.len()];

            let start = Instant::now();
            self.compress_all(&image.bytes, &mut slots, &mut lens);
            compress += start.elapsed();

            let start = Instant::now();
            self.decompress_all(&slots, &lens, &mut back)?;
            decompress += start.elapsed();

            assert!(back == image.bytes, "{} changed a page of {}", self.spec, image.name);
            self.stored.push(lens.iter().sum());
        }
        let pages = page_count(images) as u128;
        self.compress.push((compress.as_nanos() / pages) as u64);
        self.decompress.push((decompress.as_nanos() / pages) as u64);
        Ok(())
    }

    /// Compresses each page into the slot at its place and notes the length.
    fn compress_all(&mut self, pages: &[u8], slots: &mut [u8], lens: &mut [usize]) {
        let slots = slots.chunks_exact_mut(PAGE_LEN);
        for ((page, slot), len) in pages.chunks_exact(PAGE_LEN).zip(slots).zip(lens) {
            let fitting = self.codec.compress(page, &mut slot[..PAGE_LEN - 1]);
            *len = fitting.unwrap_or_else(|| {
                slot.copy_from_slice(page);
                PAGE_LEN
            });
        }
    }

    /// Undoes `compress_all`.
    fn decompress_all(
        &mut self,
        slots: &[u8],
        lens: &[usize],
        pages: &mut [u8],
    ) -> Result<(), Box<dyn Error>> {
        let slots = slots.chunks_exact(PAGE_LEN);
        for ((page, slot), &len) in pages.chunks_exact_mut(PAGE_LEN).zip(slots).zip(lens) {
            if len == PAGE_LEN {
                page.copy_from_slice(slot);
            } else {
                self.codec.decompress(&slot[..len], page)?;
            }
        }
        Ok(())
    }
}

fn page_count(images: &[Image]) -> usize {
    images.iter().map(|image| image.bytes.len() / PAGE_LEN).sum()
}

fn print_table(rows: &mut [Row], images: &[Image]) {
    let names: String = images.iter().map(|image| format!(" {} |", image.name)).collect();
    println!("| codec |{names} all | compress ns | decompress ns | memory KiB |");
    println!("|:--|{}", "--:|".repeat(images.len() + 4));
    for row in rows {
        let ratios: String = images
            .iter()
            .zip(&row.stored)
            .map(|(image, &stored)| format!(" {:.2} |", image.bytes.len() as f64 / stored as f64))
            .collect();
        let stored: usize = row.stored.iter().sum();
        println!(
            "| {} |{ratios} {:.2} | {} | {} | {} |",
            label(row.spec),
            (page_count(images) * PAGE_LEN) as f64 / stored as f64,
            median(&mut row.compress),
            median(&mut row.decompress),
            row.codec.working_bytes().div_ceil(1024),
        );
    }
}

/// Returns the codec with its level even if that is the default.
fn label(spec: CodecSpec) -> String {
    let name = spec.kind().name();
    spec.level().map_or(name.to_owned(), |level| format!("{name}:{level}"))
}

fn median(figures: &mut [u64]) -> u64 {
    figures.sort_unstable();
    figures[figures.len() / 2]
}
