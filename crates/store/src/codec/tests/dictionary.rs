//! Tests that hold every codec that takes dictionaries to the same contract with one.

use super::*;

/// Trained on every eighth page of every corpus.
pub(super) static TRAINED: LazyLock<Dictionary> = LazyLock::new(|| {
    let samples: Vec<&[u8]> =
        IMAGES.iter().flat_map(|image| image.chunks_exact(4096).step_by(8)).collect();
    Dictionary::train(&samples, 32 * 1024).unwrap()
});

/// Returns the trained dictionary, and bytes that no trainer has seen, of each length that
/// matters.
pub(super) fn dictionaries() -> Vec<Dictionary> {
    let mut random = Random::new(11);
    let mut dictionaries = vec![TRAINED.clone()];
    for len in [1, 3, 8, 4096, 65535, 65536, 65537, MAX_DICTIONARY_LEN] {
        let mut bytes = random.bytes(len);
        // Something that pages refer to, also from the farthest end of a window.
        let len = len.min(1024);
        bytes[..len].copy_from_slice(&IMAGES[0][..len]);
        dictionaries.push(Dictionary::new(bytes).unwrap());
    }
    dictionaries
}

pub(super) fn able() -> impl Iterator<Item = CodecSpec> {
    specs().into_iter().filter(|spec| spec.kind().takes_dictionary())
}

fn context(spec: CodecSpec, dictionary: &Dictionary) -> Box<dyn Codec> {
    spec.context_with(4096, Some(dictionary)).unwrap()
}

#[test]
fn a_dictionary_makes_pages_of_every_process_smaller() {
    for kind in CodecKind::ALL.into_iter().filter(|kind| kind.takes_dictionary()) {
        for (image, name) in IMAGES.iter().zip(CORPORA) {
            let samples: Vec<&[u8]> = image.chunks_exact(4096).step_by(8).collect();
            let own = Dictionary::train(&samples, 16 * 1024).unwrap();
            let total = |mut codec: Box<dyn Codec>| -> usize {
                let pages = image.chunks_exact(4096).skip(1).step_by(8);
                pages.map(|page| codec.compress(page, &mut [0; 8192]).unwrap()).sum()
            };
            let without = total(CodecSpec::from(kind).context(4096).unwrap());
            let with = total(context(kind.into(), &own));
            assert!(with < without, "{} of {name}: {without} to {with}", kind.name());
        }
    }
}

#[test]
fn a_wrong_dictionary_stays_in_bounds() {
    let wrong = Dictionary::new(noise(14, 100)).unwrap();
    for spec in able() {
        let (mut writer, mut reader) = (context(spec, &TRAINED), context(spec, &wrong));
        let mut bare = spec.context(4096).unwrap();
        let mut differing = 0;
        for page in sample(4096).step_by(4) {
            let mut out = [0; 8192];
            let len = writer.compress(page, &mut out).unwrap();
            let mut back = [0; 4096];
            let result = reader.decompress(&out[..len], &mut back);
            differing += usize::from(result.is_err() || back != page);
            let _ = decode_damaged(&mut *reader, &out[..len]);
            let _ = decode_damaged(&mut *bare, &out[..len]);
        }
        assert!(differing > 0, "{spec} made nothing of its dictionary");
    }
}

#[test]
fn codecs_without_dictionaries_refuse_one_by_name() {
    for kind in [CodecKind::Page, CodecKind::Lzo] {
        let error = CodecSpec::from(kind).context_with(4096, Some(&TRAINED)).unwrap_err();
        assert_eq!(error, CodecError::NoDictionaries(kind));
        let expected = format!("codec '{}' takes no dictionary (choices: lz4, zstd)", kind.name());
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn bytes_in_the_format_of_zstd_may_be_damaged() {
    let magic = &TRAINED.bytes()[..4];
    let mut spoiled = TRAINED.bytes().to_vec();
    // Keeps the magic number and the id, and spoils the tables after them.
    spoiled[8..200].fill(0xff);
    for bytes in [spoiled, magic.to_vec(), magic.repeat(3), [magic, &[1; 9]].concat()] {
        let damaged = Dictionary::new(bytes).unwrap();
        for spec in able() {
            assert_round_trip(&mut *context(spec, &damaged), &IMAGES[0][..4096]);
        }
    }
}

#[test]
fn dictionaries_have_a_length() {
    for len in [0, MAX_DICTIONARY_LEN + 1] {
        let error = Dictionary::new(vec![0; len]).unwrap_err();
        assert_eq!(error, CodecError::DictionaryLen(len));
        assert_eq!(Dictionary::train(&[&[0; 4096]], len), Err(error));
    }
}

#[test]
fn training_on_too_little_is_an_error() {
    for samples in [&[][..], &[&[][..]], &[&[1, 2, 3][..]], &[&[0; 4096][..]]] {
        let error = Dictionary::train(samples, 4096).unwrap_err();
        assert!(matches!(error, CodecError::Training(_)), "{error}");
    }
    let error = Dictionary::train(&[&IMAGES[0][..65536]], 100).unwrap_err();
    assert!(matches!(error, CodecError::Training(_)), "{error}");
}

#[test]
fn equal_bytes_are_equal_dictionaries() {
    let [one, same, other] =
        ["abc", "abc", "abd"].map(|text| Dictionary::new(text.into()).unwrap());
    assert_eq!(one, same);
    assert_eq!(one.id(), same.id());
    assert_ne!(one, other);
    assert_ne!(one.id(), other.id());
    // The reference value of XXH3-64, which is kept with pages and must never change.
    assert_eq!(one.id(), 0x78af_5f94_892f_3950);
    assert_eq!(format!("{one:?}"), "Dictionary { id: 78af5f94892f3950, len: 3 }");
}
