//! A race of the codecs on memory pages. Prints a Markdown table: compression ratio, stored bytes,
//! nanoseconds per page and working memory, also beside those of the first codec.
//!
//! ```text
//! cargo run --release -p zfold-store --example codec_table [CODEC | FILE | PAGE_LEN]...
//! ```
//!
//! A codec is written `zstd` or `zstd:3`; without any, the defaults and a range of zstd levels are
//! measured. A file holds raw memory, or is a Zstandard frame of it if its name ends in `.zst`;
//! without any, the corpora of this repository are measured. A number is the length of a page in
//! bytes, 4096 if it is not given.
//!
//! A page that does not compress is stored as it is. All runs on one thread. The codecs take turns
//! at 64 pages each, another one first in each turn, over all files in every round; what is printed
//! is the median over the rounds, of times and of their ratios to the first codec's in the same
//! round. So a disturbance of the machine spoils a round, not a codec.

use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{env, fs};

use zfold_store::{Codec, CodecSpec};

const ROUNDS: usize = 15;
/// Pages that a codec compresses, or decompresses, in one turn.
const TURN: usize = 64;
const CORPORA: [&str; 5] = ["cc1", "node", "numpy", "postgres", "rustc"];
const CODECS: [&str; 12] = [
    "lz4",
    "lz4hc",
    "page",
    "page:deep",
    "zstd:-5",
    "zstd:-3",
    "zstd:-1",
    "zstd:1",
    "zstd:2",
    "zstd:3",
    "zstd:6",
    "lzo",
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
    compress: Vec<f64>,
    decompress: Vec<f64>,
}

/// What is to be measured.
struct Arguments {
    specs: Vec<CodecSpec>,
    images: Vec<Image>,
    page_len: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { specs, images, page_len } = arguments()?;
    let mut rows = Vec::new();
    for spec in specs {
        rows.push(Row::new(spec, page_len)?);
    }
    for _ in 0..ROUNDS {
        run(&mut rows, &images, page_len)?;
    }
    print_table(&rows, &images, page_len);
    Ok(())
}

/// Returns what the arguments ask to measure, and everything where they ask for nothing.
fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let (mut specs, mut images, mut page_len) = (Vec::new(), Vec::new(), 4096);
    for argument in env::args().skip(1) {
        if let Ok(spec) = argument.parse() {
            specs.push(spec);
        } else if let Ok(len) = argument.parse() {
            page_len = len;
        } else {
            images.push(load(Path::new(&argument))?);
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
    for image in &mut images {
        image.bytes.truncate(image.bytes.len() / page_len * page_len);
        if image.bytes.is_empty() {
            return Err(format!("{} holds no page", image.name).into());
        }
    }
    Ok(Arguments { specs, images, page_len })
}

/// Reads a file of memory, unpacking it if its name says so.
fn load(path: &Path) -> Result<Image, String> {
    let explain = |reason: &str| format!("{}: {reason}", path.display());
    let mut bytes = fs::read(path).map_err(|error| explain(&error.to_string()))?;
    if path.extension().is_some_and(|extension| extension == "zst") {
        bytes = unpack(&bytes).map_err(explain)?;
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
    fn new(spec: CodecSpec, page_len: usize) -> Result<Self, Box<dyn Error>> {
        let codec = spec.context(page_len)?;
        Ok(Self { spec, codec, stored: Vec::new(), compress: Vec::new(), decompress: Vec::new() })
    }

    /// Compresses each page into the slot at its place and notes the length.
    fn compress_all(&mut self, pages: &[u8], slots: &mut [u8], lens: &mut [usize], len: usize) {
        let slots = slots.chunks_exact_mut(len);
        for ((page, slot), stored) in pages.chunks_exact(len).zip(slots).zip(lens) {
            let fitting = self.codec.compress(page, &mut slot[..len - 1]);
            *stored = fitting.unwrap_or_else(|| {
                slot.copy_from_slice(page);
                len
            });
        }
    }

    /// Undoes `compress_all`.
    fn decompress_all(
        &mut self,
        slots: &[u8],
        lens: &[usize],
        pages: &mut [u8],
        len: usize,
    ) -> Result<(), Box<dyn Error>> {
        let slots = slots.chunks_exact(len);
        for ((page, slot), &stored) in pages.chunks_exact_mut(len).zip(slots).zip(lens) {
            if stored == len {
                page.copy_from_slice(slot);
            } else {
                self.codec.decompress(&slot[..stored], page)?;
            }
        }
        Ok(())
    }
}

/// Measures one round over all images.
fn run(rows: &mut [Row], images: &[Image], page_len: usize) -> Result<(), Box<dyn Error>> {
    let turn = TURN * page_len;
    let mut slots = vec![vec![1; turn]; rows.len()];
    let mut lens = vec![[0; TURN]; rows.len()];
    let mut back = vec![1; turn];
    let mut times = vec![[Duration::ZERO; 2]; rows.len()];
    for row in rows.iter_mut() {
        row.stored = vec![0; images.len()];
    }
    for (at, image) in images.iter().enumerate() {
        for (nth, pages) in image.bytes.chunks(turn).enumerate() {
            let count = pages.len() / page_len;
            // Another one is the first in each turn: what went before has left its mark.
            let order: Vec<usize> = (0..rows.len()).map(|n| (n + nth) % rows.len()).collect();
            for &n in &order {
                let row = &mut rows[n];
                warm(pages);
                let start = Instant::now();
                row.compress_all(pages, &mut slots[n], &mut lens[n], page_len);
                times[n][0] += start.elapsed();
                row.stored[at] += lens[n][..count].iter().sum::<usize>();
            }
            for &n in &order {
                let row = &mut rows[n];
                let back = &mut back[..pages.len()];
                warm(&slots[n]);
                let start = Instant::now();
                row.decompress_all(&slots[n], &lens[n], back, page_len)?;
                times[n][1] += start.elapsed();
                assert!(back == pages, "{} changed a page of {}", row.spec, image.name);
            }
        }
    }
    let pages = page_count(images, page_len) as f64;
    for (row, [compress, decompress]) in rows.iter_mut().zip(times) {
        row.compress.push(compress.as_nanos() as f64 / pages);
        row.decompress.push(decompress.as_nanos() as f64 / pages);
    }
    Ok(())
}

/// Brings bytes into the cache, so that no codec does it for those behind it.
fn warm(bytes: &[u8]) {
    black_box(bytes.iter().fold(0, |all, byte| all ^ byte));
}

fn page_count(images: &[Image], page_len: usize) -> usize {
    images.iter().map(|image| image.bytes.len() / page_len).sum()
}

fn print_table(rows: &[Row], images: &[Image], page_len: usize) {
    let names: String = images.iter().map(|image| format!(" {} |", image.name)).collect();
    println!("| codec |{names} all | bytes | compress ns | × | decompress ns | × | memory KiB |");
    println!("|:--|{}", "--:|".repeat(images.len() + 7));
    let total = |row: &Row| row.stored.iter().sum::<usize>() as f64;
    for row in rows {
        let ratios: String = images
            .iter()
            .zip(&row.stored)
            .map(|(image, &stored)| format!(" {:.2} |", image.bytes.len() as f64 / stored as f64))
            .collect();
        println!(
            "| {} |{ratios} {:.2} | {:+.1} % | {:.0} | {:.2} | {:.0} | {:.2} | {} |",
            label(row.spec),
            (page_count(images, page_len) * page_len) as f64 / total(row),
            100.0 * (total(row) / total(&rows[0]) - 1.0),
            median(row.compress.clone()),
            beside(&row.compress, &rows[0].compress),
            median(row.decompress.clone()),
            beside(&row.decompress, &rows[0].decompress),
            row.codec.working_bytes().div_ceil(1024),
        );
    }
}

/// Returns the codec with its level even if that is the default.
fn label(spec: CodecSpec) -> String {
    let name = spec.kind().name();
    spec.level_text().map_or(name.to_owned(), |level| format!("{name}:{level}"))
}

/// Returns the median of the ratios of figures of the same rounds.
fn beside(own: &[f64], base: &[f64]) -> f64 {
    median(own.iter().zip(base).map(|(own, base)| own / base).collect())
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
