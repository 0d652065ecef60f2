//! The message of a VMM, put together from its pieces: one JSON array.
//!
//! Its length is not sent, so it ends where its brackets close. Each byte is examined once, however
//! many pieces there are.

/// Longest message in bytes: some thousand regions.
const LEN_MAX: usize = 256 << 10;

/// A message, possibly incomplete.
#[derive(Debug, Default)]
pub(crate) struct Message {
    bytes: Vec<u8>,
    /// Open brackets.
    depth: u32,
    in_text: bool,
    escaped: bool,
    whole: bool,
}

/// Why the bytes received are not a message.
const NO_LIST: &str = "its message is not a list of regions";
const ENDLESS: &str = "its message does not end";

impl Message {
    /// Adds a piece; says what is wrong if it makes no message.
    pub(crate) fn add(&mut self, piece: &[u8]) -> Result<(), &'static str> {
        for &byte in piece {
            if self.whole && !byte.is_ascii_whitespace() {
                return Err(NO_LIST);
            }
            self.look(byte)?;
        }
        if self.bytes.len() + piece.len() > LEN_MAX {
            return Err(ENDLESS);
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }

    /// Returns whether it is complete.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole
    }

    /// Returns the bytes received.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn look(&mut self, byte: u8) -> Result<(), &'static str> {
        if self.in_text {
            match (self.escaped, byte) {
                (true, _) => self.escaped = false,
                (false, b'\\') => self.escaped = true,
                (false, b'"') => self.in_text = false,
                _ => {}
            }
            return Ok(());
        }
        match byte {
            b'[' => self.depth += 1,
            _ if byte.is_ascii_whitespace() => {}
            _ if self.depth == 0 => return Err(NO_LIST),
            b'{' => self.depth += 1,
            b'"' => self.in_text = true,
            b']' | b'}' => {
                self.depth -= 1;
                self.whole = self.depth == 0;
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = br#"[{"size": 4096, "name": "]}\"["}, {"offset": 1}] "#;

    #[test]
    fn pieces_of_any_length_make_the_same_message() {
        for len in 1..=TEXT.len() {
            let mut message = Message::default();
            for piece in TEXT.chunks(len) {
                message.add(piece).expect("right");
            }
            assert!(message.is_whole(), "pieces of {len}");
            assert_eq!(message.into_bytes(), TEXT, "pieces of {len}");
        }
    }

    #[test]
    fn what_is_not_one_array_is_refused() {
        let add = |text: &[u8]| {
            let mut message = Message::default();
            message.add(text).map(|()| message.is_whole())
        };
        assert_eq!(add(b"[{}"), Ok(false));
        assert_eq!(add(b"GET / HTTP/1.1"), Err(NO_LIST));
        assert_eq!(add(b"]"), Err(NO_LIST));
        assert_eq!(add(b"{}"), Err(NO_LIST));
        assert_eq!(add(b"\"["), Err(NO_LIST));
        assert_eq!(add(b"[][]"), Err(NO_LIST));
        assert_eq!(add(b""), Ok(false));
        let mut endless = Message::default();
        let refused = (0..100).find_map(|_| endless.add(&[b'['; 4096]).err());
        assert_eq!(refused, Some(ENDLESS));
    }
}
