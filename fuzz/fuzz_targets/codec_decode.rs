//! Any bytes into every codec's decompressor: it returns, stays inside the page, and the context
//! works afterwards. Half of the inputs are taken as they are; the others are a page that was
//! compressed and then damaged, which comes further into a decoder.

#![no_main]

use libfuzzer_sys::fuzz_target;
use zfold_store::{CodecKind, CodecSpec};

/// Bytes around the page that no decoder may touch.
const GUARD_BYTES: usize = 64;
const GUARD: u8 = 0xA5;

fuzz_target!(|data: &[u8]| {
    let Some((&[choice, damage, at_low, at_high], bytes)) = data.split_first_chunk() else {
        return;
    };
    let page_len = [4096, 16384, 100, 1][choice as usize / 6 % 4];
    let spec = CodecSpec::from(CodecKind::ALL[choice as usize % 6]);
    let mut codec = spec.context(page_len).expect("a page length in range");

    let mut page: Vec<u8> = bytes.iter().copied().cycle().take(page_len).collect();
    page.resize(page_len, 0);
    let mut packed = vec![0; page_len + page_len / 8 + 256];
    let len = codec.compress(&page, &mut packed).expect("room for any page");
    packed.truncate(len);

    let mut input = bytes.to_vec();
    if choice >= 128 {
        input.clone_from(&packed);
        let at = usize::from(u16::from_le_bytes([at_low, at_high])) % len;
        input[at] ^= damage;
        if damage & 1 != 0 {
            input.truncate(at);
        }
    }
    let mut framed = vec![GUARD; GUARD_BYTES + page_len + GUARD_BYTES];
    let _ = codec.decompress(&input, &mut framed[GUARD_BYTES..GUARD_BYTES + page_len]);
    let (before, rest) = framed.split_at(GUARD_BYTES);
    let after = &rest[page_len..];
    assert!(before.iter().chain(after).all(|&byte| byte == GUARD), "{spec} left the page");

    let mut back = vec![0; page_len];
    codec.decompress(&packed, &mut back).expect("its own output decodes");
    assert!(back == page, "{spec} decoded its own output to another page");
});
