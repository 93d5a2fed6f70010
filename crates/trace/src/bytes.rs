//! Encodes numbers, strings and lists for a trace file, and decodes them.

/// Appends encoded values to a buffer.
pub(crate) trait Encoder {
    fn number(&mut self, value: u64);
    fn signed(&mut self, value: i64);
    fn text(&mut self, text: &str);
    fn list<T>(&mut self, items: &[T], put: impl FnMut(&mut Self, &T));
}

impl Encoder for Vec<u8> {
    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.push(value as u8);
    }

    fn signed(&mut self, value: i64) {
        self.number(((value << 1) ^ (value >> 63)) as u64);
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.extend_from_slice(text.as_bytes());
    }

    fn list<T>(&mut self, items: &[T], mut put: impl FnMut(&mut Self, &T)) {
        self.number(items.len() as u64);
        for item in items {
            put(self, item);
        }
    }
}

/// Decodes values from the front of a byte slice. A method returns `None` for missing or malformed
/// bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decoder<'a>(pub &'a [u8]);

impl<'a> Decoder<'a> {
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub fn byte(&mut self) -> Option<u8> {
        self.bytes(1).map(|bytes| bytes[0])
    }

    pub fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    pub fn size(&mut self) -> Option<usize> {
        self.number()?.try_into().ok()
    }

    pub fn small(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    pub fn signed(&mut self) -> Option<i64> {
        let bits = self.number()?;
        Some((bits >> 1) as i64 ^ -((bits & 1) as i64))
    }

    pub fn text(&mut self) -> Option<String> {
        let length = self.size()?;
        String::from_utf8(self.bytes(length)?.to_vec()).ok()
    }

    pub fn list<T>(&mut self, mut take: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.size()?;
        // Every item has at least one byte, so a larger length is malformed.
        if count > self.0.len() {
            return None;
        }
        (0..count).map(|_| take(self)).collect()
    }
}
