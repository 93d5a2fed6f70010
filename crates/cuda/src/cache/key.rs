//! Defines the key of an entry of the cache.

/// A 256-bit hash of everything that an entry depends on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key([u8; 32]);

impl Key {
    /// The number of bytes of a key.
    pub(super) const BYTES: usize = 32;

    /// Hashes everything that an entry depends on, as pairs of a name and a value. The version of
    /// this crate is part of every key.
    pub fn of(parts: &[(&str, &[u8])]) -> Self {
        let mut hasher =
            blake3::Hasher::new_derive_key(concat!("tilewright cache ", env!("CARGO_PKG_VERSION")));
        for (name, content) in parts {
            for text in [name.as_bytes(), content] {
                hasher.update(&(text.len() as u64).to_le_bytes());
                hasher.update(text);
            }
        }
        Self(*hasher.finalize().as_bytes())
    }

    /// Returns the key in hexadecimal digits.
    pub fn to_hex(self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }

    /// Parses the text that [`Key::to_hex`] returns. Returns `None` for any other text.
    pub fn from_hex(text: &str) -> Option<Self> {
        let key = Self(*blake3::Hash::from_hex(text).ok()?.as_bytes());
        // Upper-case digits would form the name of another file, so they are rejected.
        (key.to_hex() == text).then_some(key)
    }

    pub(super) fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}
