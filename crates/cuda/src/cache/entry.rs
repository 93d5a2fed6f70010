//! Encodes and decodes the bytes of an entry. The second row has the sizes in bytes:
//!
//! ```text
//! magic  key  checksum of the rest  length of the provenance  provenance            content
//! 8      32   32                    4                         4 texts with lengths  the rest
//! ```

use super::Key;

/// The first bytes of an entry.
const MAGIC: [u8; 8] = *b"TWCUBIN2";
const CHECKSUM: usize = MAGIC.len() + Key::BYTES;
const BODY: usize = CHECKSUM + blake3::OUT_LEN;
const LENGTH: usize = size_of::<u32>();

/// The maximum number of bytes of a text of the provenance. Longer texts are truncated.
const MAX_TEXT_BYTES: usize = 4096;
const TEXTS: usize = 4;

/// The maximum number of bytes before the content of an entry.
pub(super) const MAX_HEADER_BYTES: usize = BODY + LENGTH + TEXTS * (LENGTH + MAX_TEXT_BYTES);

/// Describes to a user the inputs from which a cubin was assembled.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Provenance {
    /// The name of the kernel.
    pub kernel: String,
    /// The GPU, such as `sm_90`.
    pub target: String,
    /// The release of the driver.
    pub driver: String,
    /// The options of the assembler.
    pub options: String,
}

impl Provenance {
    fn texts(&self) -> [&str; TEXTS] {
        [&self.kernel, &self.target, &self.driver, &self.options].map(|text| cut(text))
    }
}

/// Truncates a text to at most [`MAX_TEXT_BYTES`] bytes.
fn cut(text: &str) -> &str {
    let end = (0..=text.len().min(MAX_TEXT_BYTES)).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

/// Returns the bytes of an entry.
pub(super) fn encode(key: &Key, provenance: &Provenance, content: &[u8]) -> Vec<u8> {
    let texts = provenance.texts();
    let length: usize = texts.iter().map(|text| LENGTH + text.len()).sum();
    let mut bytes = Vec::with_capacity(BODY + LENGTH + length + content.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(key.as_bytes());
    bytes.resize(BODY, 0);
    bytes.extend_from_slice(&(length as u32).to_le_bytes());
    for text in texts {
        bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes.extend_from_slice(content);
    let checksum = blake3::hash(&bytes[BODY..]);
    bytes[CHECKSUM..BODY].copy_from_slice(checksum.as_bytes());
    bytes
}

/// Returns the content of an entry, given the bytes of the entry. Returns `None` if the entry is
/// damaged or belongs to another key.
pub(super) fn into_content(key: &Key, mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    let (_, start) = decode(key, &bytes)?;
    bytes.drain(..start);
    Some(bytes)
}

/// Returns the provenance of an entry and the offset of its content. Returns `None` if the entry is
/// damaged or belongs to another key.
pub(super) fn decode(key: &Key, bytes: &[u8]) -> Option<(Provenance, usize)> {
    let found = decode_header(key, bytes)?;
    (bytes[CHECKSUM..BODY] == *blake3::hash(&bytes[BODY..]).as_bytes()).then_some(found)
}

/// Returns the result of [`decode`], given only the first [`MAX_HEADER_BYTES`] bytes of an entry.
/// Does not compare the checksum.
pub(super) fn decode_header(key: &Key, bytes: &[u8]) -> Option<(Provenance, usize)> {
    let rest = bytes.strip_prefix(&MAGIC)?.strip_prefix(key.as_bytes())?.get(blake3::OUT_LEN..)?;
    let (mut texts, _) = split_sized(rest)?;
    let start = BODY + LENGTH + texts.len();
    let mut text = || {
        let (first, others) = split_sized(texts)?;
        texts = others;
        String::from_utf8(first.to_vec()).ok()
    };
    let provenance = Provenance { kernel: text()?, target: text()?, driver: text()?, options: text()? };
    texts.is_empty().then_some((provenance, start))
}

/// Splits off the first text or list, which is stored as its length in bytes and its bytes. Returns
/// these bytes and the rest.
fn split_sized(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<LENGTH>()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let key = Key::of(&[]);
        let long = "é".repeat(MAX_TEXT_BYTES);
        let provenance = Provenance { kernel: format!("x{long}"), target: "sm_90".into(), ..<_>::default() };
        let bytes = encode(&key, &provenance, b"content");
        let (found, start) = decode(&key, &bytes).unwrap();
        assert_eq!(found.kernel, format!("x{}", "é".repeat(MAX_TEXT_BYTES / 2 - 1)));
        assert_eq!((&*found.target, &*found.driver, &bytes[start..]), ("sm_90", "", &b"content"[..]));
        assert_eq!(decode_header(&key, &bytes[..start]), Some((found, start)));
        assert_eq!(decode_header(&key, &bytes[..start - 1]), None);
        assert_eq!(into_content(&key, bytes), Some(b"content".to_vec()));
    }
}
