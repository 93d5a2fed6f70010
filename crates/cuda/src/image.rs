//! Checks that an image is as long as its header states.
//!
//! An image is a cubin (an ELF file) or a fat binary. The driver takes only a pointer, and would
//! read beyond the end of a truncated image.

/// Device code that is at least as long as its header states.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Image<'a>(&'a [u8]);

/// The first bytes of a fat binary.
const FAT_BINARY: [u8; 4] = [0x50, 0xed, 0x55, 0xba];

impl<'a> Image<'a> {
    /// Returns whether the bytes begin like a cubin or a fat binary. All other images may be PTX.
    pub(crate) fn is_binary(bytes: &[u8]) -> bool {
        bytes.starts_with(b"\x7fELF") || bytes.starts_with(&FAT_BINARY)
    }

    /// Checks that the image is complete, as its header states. The error is the reason why the
    /// image is unusable.
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self, &'static str> {
        let end = if bytes.starts_with(&FAT_BINARY) {
            let (header, body) = (number(bytes, 6, 2), number(bytes, 8, 8));
            header.zip(body).and_then(|(header, body)| header.checked_add(body))
        } else if bytes.starts_with(b"\x7fELF\x02\x01") {
            elf_end(bytes)
        } else {
            return Err("it is neither a 64-bit ELF file nor a fat binary");
        };
        match end {
            Some(end) if end <= bytes.len() as u64 => Ok(Self(bytes)),
            _ => Err("it is cut off"),
        }
    }

    pub(crate) fn bytes(self) -> &'a [u8] {
        self.0
    }
}

/// Returns the minimum size in bytes of a 64-bit ELF file with this header: the end of the last
/// segment, section or table.
fn elf_end(bytes: &[u8]) -> Option<u64> {
    // The first row describes the table of segments, the second row the table of sections. The
    // values of a row are:
    //
    // - three offsets of fields in the file's header: the offset of the table, the size of an
    //   entry, and the number of entries
    // - two offsets of fields in an entry: the offset and the size of its contents
    // - true for sections, which take no bytes in the file if their type is 8 (`SHT_NOBITS`)
    let tables = [(0x20, 0x36, 0x38, 0x08, 0x20, false), (0x28, 0x3a, 0x3c, 0x18, 0x20, true)];
    let mut end = 0x40;
    for (offset, entry_bytes, count, at, size, has_kind) in tables {
        let (offset, entry_bytes, count) =
            (number(bytes, offset, 8)?, number(bytes, entry_bytes, 2)?, number(bytes, count, 2)?);
        end = end.max(offset.checked_add(entry_bytes * count)?);
        for entry in 0..count {
            let entry = usize::try_from(offset.checked_add(entry * entry_bytes)?).ok()?;
            if has_kind && number(bytes, entry.checked_add(4)?, 4)? == 8 {
                continue;
            }
            let (at, size) =
                (number(bytes, entry.checked_add(at)?, 8)?, number(bytes, entry.checked_add(size)?, 8)?);
            end = end.max(at.checked_add(size)?);
        }
    }
    Some(end)
}

/// Returns the little-endian number of `width` bytes at offset `at`. Returns `None` if `bytes` is
/// too short.
fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let part = bytes.get(at..at.checked_add(width)?)?;
    Some(part.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an ELF file with two sections after the header: one of 16 bytes, and one that takes
    /// no bytes in the file.
    fn elf() -> Vec<u8> {
        let mut file = vec![0; 0x40 + 16 + 2 * 0x40];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[0x28] = 0x50;
        file[0x3a] = 0x40;
        file[0x3c] = 2;
        let (section, empty) = (0x50, 0x90);
        file[section + 4] = 1;
        file[section + 0x18] = 0x40;
        file[section + 0x20] = 16;
        file[empty + 4] = 8;
        file[empty + 0x21] = 0xff;
        file
    }

    #[test]
    fn whole_files_are_taken_and_every_shorter_one_refused() {
        let elf = elf();
        assert!(Image::new(&elf).is_ok());
        let mut fat = FAT_BINARY.to_vec();
        fat.extend([1, 0, 16, 0, 4, 0, 0, 0, 0, 0, 0, 0, 9, 9, 9, 9]);
        assert!(Image::new(&fat).is_ok());
        for file in [elf, fat] {
            for length in 0..file.len() {
                assert!(Image::new(&file[..length]).is_err(), "{length} of {}", file.len());
            }
        }
    }

    #[test]
    fn absurd_headers_are_refused() {
        let mut elf = elf();
        elf[0x28..0x30].fill(0xff);
        assert!(Image::new(&elf).is_err());
        assert!(Image::new(b".version 8.0").is_err());
    }
}
