//! Tests that hold every codec to the contract of [`Codec`].

mod dictionary;
mod page;

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use zfold_testing::Random;
use zfold_testing::random::noise;

use super::*;

const PAGE_LENS: [usize; 3] = [4096, 16384, 65536];
const CORPORA: [&str; 5] = ["cc1", "node", "numpy", "postgres", "rustc"];

static IMAGES: LazyLock<[Vec<u8>; 5]> = LazyLock::new(|| CORPORA.map(image));

/// Returns the raw pages of a corpus, end to end.
fn image(name: &str) -> Vec<u8> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus");
    let packed = fs::read(corpus.join(format!("{name}.pages.zst"))).unwrap();
    let len = zstd_safe::get_frame_content_size(&packed).unwrap().unwrap();
    let mut image = vec![0; usize::try_from(len).unwrap()];
    zstd_safe::decompress(&mut image[..], &packed).unwrap();
    image
}

/// Returns some pages of `page_len` bytes from every corpus.
fn sample(page_len: usize) -> impl Iterator<Item = &'static [u8]> {
    IMAGES.iter().flat_map(move |image| image.chunks_exact(page_len).step_by(15))
}

/// Returns every codec at its lowest, default and highest level.
fn specs() -> Vec<CodecSpec> {
    let mut specs = Vec::new();
    for kind in CodecKind::ALL {
        specs.push(CodecSpec::from(kind));
        specs.push(CodecSpec::new(kind, Some(*kind.levels().start())).unwrap());
        specs.push(CodecSpec::new(kind, Some(*kind.levels().end())).unwrap());
    }
    // One without levels has only one.
    specs.dedup();
    specs
}

fn defaults() -> impl Iterator<Item = CodecSpec> {
    CodecKind::ALL.into_iter().map(CodecSpec::from)
}

/// A codec, and what it may refer to.
type Variant = (CodecSpec, Option<Dictionary>);

/// Returns these codecs, and those that take a dictionary with the trained one as well.
fn variants(specs: impl IntoIterator<Item = CodecSpec>) -> Vec<Variant> {
    let trained = |spec: CodecSpec| {
        spec.kind().takes_dictionary().then(|| (spec, Some(dictionary::TRAINED.clone())))
    };
    specs.into_iter().flat_map(|spec| [Some((spec, None)), trained(spec)]).flatten().collect()
}

fn context((spec, dictionary): &Variant, page_len: usize) -> Box<dyn Codec> {
    spec.context_with(page_len, dictionary.as_ref()).unwrap()
}

/// Bytes that are watched on both sides for writes out of bounds.
struct Guarded(Vec<u8>);

impl Guarded {
    const EDGE: usize = 64;
    const MARK: u8 = 0xa5;

    fn new(len: usize) -> Self {
        Self(vec![Self::MARK; len + 2 * Self::EDGE])
    }

    fn inner(&mut self) -> &mut [u8] {
        let end = self.0.len() - Self::EDGE;
        &mut self.0[Self::EDGE..end]
    }

    fn assert_intact(&self) {
        let (front, rest) = self.0.split_at(Self::EDGE);
        let back = &rest[rest.len() - Self::EDGE..];
        assert!(front.iter().chain(back).all(|&byte| byte == Self::MARK));
    }
}

fn assert_round_trip(codec: &mut dyn Codec, page: &[u8]) {
    let mut out = vec![0; 2 * page.len() + 64];
    let len = codec.compress(page, &mut out).unwrap();
    let bytes: Box<[u8]> = out[..len].into();
    let mut back = vec![0xff; page.len()];
    codec.decompress(&bytes, &mut back).unwrap();
    assert!(back == page, "{codec:?} changed a page of {} bytes", page.len());
    for other in [page.len() - 1, page.len() + 1] {
        assert_eq!(codec.decompress(&bytes, &mut vec![0; other]), Err(DecodeError));
    }
}

#[test]
fn pages_round_trip() {
    for variant in variants(specs()) {
        for page_len in PAGE_LENS {
            let (mut codec, spec) = (context(&variant, page_len), variant.0);
            let slow = page_len > 4096 && spec.level() != spec.kind().default_level();
            for page in sample(page_len).step_by(if slow { 8 } else { 1 }) {
                assert_round_trip(&mut *codec, page);
            }
        }
    }
    for spec in dictionary::able() {
        for dictionary in dictionary::dictionaries() {
            let mut codec = context(&(spec, Some(dictionary)), 4096);
            for page in sample(4096).step_by(16) {
                assert_round_trip(&mut *codec, page);
            }
        }
    }
}

#[test]
fn made_up_pages_round_trip() {
    let mut random = Random::new(1);
    for variant in variants(specs()) {
        for page_len in [1, 2, 3, 5, 17, 255, 4095, 4096, 4097, 16384, 65536] {
            let mut codec = context(&variant, page_len);
            assert_round_trip(&mut *codec, &vec![0; page_len]);
            assert_round_trip(&mut *codec, &random.bytes(page_len));
            let sparse: Vec<u8> = (0..page_len).map(|at| (at % 7 == 0) as u8 * 9).collect();
            assert_round_trip(&mut *codec, &sparse);
        }
    }
}

#[test]
fn incompressible_page_is_refused() {
    for spec in specs() {
        for page_len in PAGE_LENS {
            let page = noise(2, page_len);
            let mut codec = spec.context(page_len).unwrap();
            let mut out = Guarded::new(page_len - 1);
            assert_eq!(codec.compress(&page, out.inner()), None, "{spec}");
            out.assert_intact();
        }
    }
}

#[test]
fn short_output_is_refused() {
    for variant in variants(specs()) {
        let (mut codec, spec) = (context(&variant, 4096), variant.0);
        for page in sample(4096).step_by(40) {
            let needed = codec.compress(page, &mut [0; 8192]).unwrap();
            for short in (0..needed).rev().step_by(needed / 50 + 1) {
                let mut out = Guarded::new(short);
                assert_eq!(codec.compress(page, out.inner()), None, "{spec} in {short} bytes");
                out.assert_intact();
            }
        }
    }
}

/// Decompresses from an allocation that ends where `bytes` end, into a guarded page.
fn decode_damaged(codec: &mut dyn Codec, bytes: &[u8]) -> Result<(), DecodeError> {
    let bytes: Box<[u8]> = bytes.into();
    let mut page = Guarded::new(4096);
    let result = codec.decompress(&bytes, page.inner());
    page.assert_intact();
    result
}

#[test]
fn truncated_bytes_are_an_error() {
    for spec in defaults() {
        let mut codec = spec.context(4096).unwrap();
        for page in sample(4096).step_by(40) {
            let mut out = [0; 8192];
            let len = codec.compress(page, &mut out).unwrap();
            for cut in 0..len {
                let result = decode_damaged(&mut *codec, &out[..cut]);
                assert_eq!(result, Err(DecodeError), "{spec} cut from {len} to {cut}");
            }
        }
    }
}

#[test]
fn damaged_bytes_and_garbage_stay_in_bounds() {
    let mut random = Random::new(3);
    for variant in variants(defaults()) {
        let mut codec = context(&variant, 4096);
        for page in sample(4096).step_by(10) {
            let mut out = [0; 8192];
            let len = codec.compress(page, &mut out).unwrap();
            for _ in 0..100 {
                let mut damaged = out[..len].to_vec();
                for _ in 0..1 + random.index(3) {
                    damaged[random.index(len)] ^= 1 << random.index(8);
                }
                damaged.truncate(1 + random.index(2 * len));
                // Without a checksum, a wrong page is as good an answer as an error.
                let _ = decode_damaged(&mut *codec, &damaged);
            }
            assert_round_trip(&mut *codec, page);
        }
        for _ in 0..3000 {
            let len = random.index(600);
            let _ = decode_damaged(&mut *codec, &random.bytes(len));
        }
    }
}

#[test]
fn output_depends_on_page_and_dictionary_alone() {
    let noise = noise(5, 4096);
    for (spec, dictionary) in variants(specs()) {
        let mut used = context(&(spec, dictionary.clone()), 4096);
        // An equal dictionary, not the same one.
        let equal = dictionary.map(|of| Dictionary::new(of.bytes().to_vec()).unwrap());
        let new = (spec, equal);
        for (at, page) in sample(4096).step_by(5).enumerate() {
            if at % 4 == 3 {
                used.compress(&noise, &mut [0; 2048]);
            }
            let (mut from_used, mut from_new) = ([0; 8192], [0; 8192]);
            let len = used.compress(page, &mut from_used);
            assert_eq!(context(&new, 4096).compress(page, &mut from_new), len);
            assert!(from_used == from_new, "{spec}");
        }
    }
}

#[test]
fn working_memory_is_allocated_at_once() {
    for variant in variants(specs()) {
        for page_len in PAGE_LENS {
            let (mut codec, spec) = (context(&variant, page_len), variant.0);
            let bytes = codec.working_bytes();
            assert!(bytes > 8192, "{spec} reports {bytes}");
            let without = spec.context(page_len).unwrap().working_bytes();
            assert!(variant.1.is_none() || bytes > without, "{spec} reports {bytes}");
            for page in sample(page_len).step_by(20) {
                assert_round_trip(&mut *codec, page);
            }
            assert_eq!(codec.working_bytes(), bytes, "{spec}");
        }
    }
}

#[test]
fn contexts_of_one_codec_read_each_other() {
    let page = sample(4096).next().unwrap();
    for spec in specs() {
        let mut out = [0; 8192];
        let len = spec.context(4096).unwrap().compress(page, &mut out).unwrap();
        let mut reader = CodecSpec::from(spec.kind()).context(4096).unwrap();
        let mut back = [0; 4096];
        reader.decompress(&out[..len], &mut back).unwrap();
        assert!(back == page, "{spec}");
    }
}

/// The library is pinned by the lock file; a new total means that it changed what it writes.
#[test]
fn lz4_total_is_golden() {
    let mut codec = CodecSpec::from(CodecKind::Lz4).context(4096).unwrap();
    let total: usize = IMAGES[0]
        .chunks_exact(4096)
        .map(|page| codec.compress(page, &mut [0; 4095]).unwrap_or(4096))
        .sum();
    assert_eq!(total, 1_374_722);
}

#[test]
fn specs_round_trip_as_text() {
    for kind in CodecKind::ALL {
        assert_eq!(CodecSpec::from(kind).to_string(), kind.name());
        assert_eq!(kind.name().parse(), Ok(CodecSpec::from(kind)));
        assert_eq!(CodecSpec::new(kind, None), Ok(CodecSpec::from(kind)));
        for level in kind.levels() {
            let spec = CodecSpec::new(kind, Some(level)).unwrap();
            assert_eq!((spec.kind(), spec.level()), (kind, level));
            assert_eq!(spec.to_string().parse(), Ok(spec));
            let text = spec.level_text();
            assert_eq!(format!("{}:{text}", kind.name()).parse(), Ok(spec));
        }
    }
    for text in ["zstd:-5", "page", "page:deep"] {
        assert_eq!(text.parse::<CodecSpec>().unwrap().to_string(), text);
    }
}

#[test]
fn page_length_is_checked() {
    let spec = CodecSpec::from(CodecKind::Lz4);
    for len in [0, MAX_PAGE_LEN + 1] {
        let error = spec.context(len).unwrap_err();
        assert_eq!(error, CodecError::PageLen(len));
        assert_eq!(error.to_string(), format!("bad page length {len} (range: 1 to 1073741824)"));
    }
}
