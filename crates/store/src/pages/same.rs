//! Same-filled pages: one word repeated.

/// Bytes of the word that a page may repeat.
const WORD: usize = size_of::<u64>();

/// Returns the word that `page`, a multiple of 8 bytes long, repeats, if it does.
///
/// # Cost
/// Usually two words read: a page of which the first word differs from the last is not
/// same-filled.
#[inline]
pub(crate) fn repeated_word(page: &[u8]) -> Option<u64> {
    let (first, last) = (page.first_chunk::<WORD>()?, page.last_chunk::<WORD>()?);
    let same = first == last && page[WORD..] == page[..page.len() - WORD];
    same.then(|| u64::from_ne_bytes(*first))
}

/// Fills `page` with `word`.
pub(crate) fn fill(page: &mut [u8], word: u64) {
    for chunk in page.chunks_exact_mut(WORD) {
        chunk.copy_from_slice(&word.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_repeated_word_is_found_and_comes_back() {
        for word in [0, u64::MAX, 0x0123_4567_89AB_CDEF] {
            let mut page = [1; 4096];
            fill(&mut page, word);
            assert_eq!(repeated_word(&page), Some(word));
        }
    }

    #[test]
    fn one_different_byte_anywhere_is_noticed() {
        for at in [0, 7, 8, 2000, 4088, 4095] {
            let mut page = [0; 4096];
            page[at] = 1;
            assert_eq!(repeated_word(&page), None, "byte {at}");
        }
    }
}
