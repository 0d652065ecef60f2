//! Prints a Markdown table of what a dictionary does for each capture of this repository.
//!
//! ```text
//! cargo run --release -p zfold-store --example dictionary_table [CODEC]...
//! ```
//!
//! For each capture, a dictionary is trained on every eighth page and measured on the others: a
//! process is compressed with what is known of itself. A page that does not compress counts as it
//! is. Every round runs every variant once, by turns, on one thread. Times are of the processor,
//! not of the clock on the wall, and the lowest of the rounds: on a machine with other work, the
//! median says more about that.

use std::error::Error;
use std::path::Path;
use std::time::Duration;
use std::{env, fs};

use rustix::time::{ClockId, clock_gettime};
use zfold_store::{Codec, CodecSpec, Dictionary};

const PAGE_LEN: usize = 4096;
const ROUNDS: usize = 15;
const CORPORA: [&str; 5] = ["cc1", "node", "numpy", "postgres", "rustc"];
/// Lengths of dictionaries in bytes; 0 is none.
const LENS: [usize; 4] = [0, 4 << 10, 16 << 10, 64 << 10];

/// A codec with one length of dictionary, on one capture.
struct Cell {
    codec: Box<dyn Codec>,
    train: Duration,
    stored: usize,
    /// Nanoseconds per page of each round.
    compress: Vec<u64>,
    decompress: Vec<u64>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut names: Vec<String> = env::args().skip(1).collect();
    if names.is_empty() {
        names = ["lz4", "zstd:1"].map(str::to_owned).into();
    }
    print!("| codec | capture | dictionary KiB | ratio | compress ns | decompress ns ");
    println!("| memory KiB | training ms |");
    println!("|:--|:--|--:|--:|--:|--:|--:|--:|");
    for name in names {
        let spec: CodecSpec = name.parse()?;
        for capture in CORPORA {
            measure(spec, capture)?;
        }
    }
    Ok(())
}

/// Prints the rows of one codec and capture.
fn measure(spec: CodecSpec, capture: &str) -> Result<(), Box<dyn Error>> {
    let image = load(capture)?;
    let (mut samples, mut pages) = (Vec::new(), Vec::new());
    for (at, page) in image.chunks_exact(PAGE_LEN).enumerate() {
        if at % 8 == 0 { &mut samples } else { &mut pages }.push(page);
    }
    let mut cells = Vec::new();
    for len in LENS {
        let start = thread_time();
        let dictionary = match len {
            0 => None,
            _ => Some(Dictionary::train(&samples, len)?),
        };
        let train = thread_time() - start;
        let codec = spec.context_with(PAGE_LEN, dictionary.as_ref())?;
        cells.push(Cell { codec, train, stored: 0, compress: Vec::new(), decompress: Vec::new() });
    }
    for _ in 0..ROUNDS {
        for cell in &mut cells {
            cell.run(&pages)?;
        }
    }
    for (cell, len) in cells.iter().zip(LENS) {
        println!(
            "| {spec} | {capture} | {} | {:.2} | {} | {} | {} | {} |",
            len >> 10,
            (pages.len() * PAGE_LEN) as f64 / cell.stored as f64,
            lowest(&cell.compress),
            lowest(&cell.decompress),
            cell.codec.working_bytes().div_ceil(1024),
            cell.train.as_millis(),
        );
    }
    Ok(())
}

impl Cell {
    /// Measures one round over all pages.
    fn run(&mut self, pages: &[&[u8]]) -> Result<(), Box<dyn Error>> {
        let mut slots = vec![1; pages.len() * PAGE_LEN];
        let mut lens = vec![None; pages.len()];
        let mut back = vec![1; PAGE_LEN];

        let start = thread_time();
        for ((page, slot), len) in pages.iter().zip(slots.chunks_mut(PAGE_LEN)).zip(&mut lens) {
            *len = self.codec.compress(page, &mut slot[..PAGE_LEN - 1]);
        }
        self.compress.push((thread_time() - start).as_nanos() as u64 / pages.len() as u64);

        let start = thread_time();
        for (slot, len) in slots.chunks(PAGE_LEN).zip(&lens) {
            if let &Some(len) = len {
                self.codec.decompress(&slot[..len], &mut back)?;
            }
        }
        self.decompress.push((thread_time() - start).as_nanos() as u64 / pages.len() as u64);
        for ((page, slot), len) in pages.iter().zip(slots.chunks(PAGE_LEN)).zip(&lens) {
            if let &Some(len) = len {
                self.codec.decompress(&slot[..len], &mut back)?;
                assert!(back == **page, "a page came back wrong");
            }
        }
        self.stored = lens.iter().map(|len| len.unwrap_or(PAGE_LEN)).sum();
        Ok(())
    }
}

/// Returns the pages of a capture, end to end.
fn load(capture: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus");
    let frame = fs::read(directory.join(format!("{capture}.pages.zst")))?;
    let len = zstd_safe::get_frame_content_size(&frame).ok().flatten();
    let mut bytes = vec![0; usize::try_from(len.ok_or("a capture tells its size")?)?];
    zstd_safe::decompress(&mut bytes[..], &frame).map_err(zstd_safe::get_error_name)?;
    Ok(bytes)
}

fn lowest(figures: &[u64]) -> u64 {
    figures.iter().copied().min().unwrap_or_default()
}

/// Returns the processor time of this thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
