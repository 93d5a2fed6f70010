//! Gathers and scatters, with an address for each element.

use super::{AccessError, AccessErrorKind, Region};

/// Reads the element of `size` bytes (1, 2, 4 or 8) at each address into a tile. Skips the elements
/// whose mask is 0: the caller has already set these elements of the tile.
///
/// Fails, with the tile unchanged, if an element is not inside one of the regions. Panics if the
/// slices have different numbers of elements.
pub fn gather(
    regions: &[Region<'_>],
    size: usize,
    addresses: &[i64],
    mask: Option<&[u8]>,
    out: &mut [u8],
) -> Result<(), AccessError> {
    assert!(out.len() == addresses.len() * size, "a tile of as many elements as addresses");
    check(regions, size, addresses, mask)?;
    // SAFETY: `check` has shown that every element is inside a region. The tile has room for each
    // element.
    unsafe {
        match size {
            1 => each::<u8>(regions, addresses, mask, out.as_mut_ptr(), |memory, tile| {
                *tile = memory.read_unaligned();
            }),
            2 => each::<u16>(regions, addresses, mask, out.as_mut_ptr(), |memory, tile| {
                tile.write_unaligned(memory.read_unaligned());
            }),
            4 => each::<u32>(regions, addresses, mask, out.as_mut_ptr(), |memory, tile| {
                tile.write_unaligned(memory.read_unaligned());
            }),
            8 => each::<u64>(regions, addresses, mask, out.as_mut_ptr(), |memory, tile| {
                tile.write_unaligned(memory.read_unaligned());
            }),
            _ => panic!("elements have 1, 2, 4 or 8 bytes"),
        }
    }
    Ok(())
}

/// Writes the element of `size` bytes (1, 2, 4 or 8) of a tile to each address. Skips the elements
/// whose mask is 0. If several elements share an address, memory has the last of them afterwards.
///
/// Fails, with nothing written, if an element is not inside one of the regions, or is inside a
/// read-only region. Panics if the slices have different numbers of elements.
pub fn scatter(
    regions: &[Region<'_>],
    size: usize,
    addresses: &[i64],
    mask: Option<&[u8]>,
    values: &[u8],
) -> Result<(), AccessError> {
    assert!(values.len() == addresses.len() * size, "a tile of as many elements as addresses");
    check(regions, size, addresses, mask)?;
    check_writable(regions, size, addresses, mask)?;
    let tile = values.as_ptr().cast_mut();
    // SAFETY: `check` has shown that every element is inside a region. The tile has each element
    // and is only read.
    unsafe {
        match size {
            1 => each::<u8>(regions, addresses, mask, tile, |memory, tile| memory.write_unaligned(*tile)),
            2 => each::<u16>(regions, addresses, mask, tile, |memory, tile| {
                memory.write_unaligned(tile.read_unaligned());
            }),
            4 => each::<u32>(regions, addresses, mask, tile, |memory, tile| {
                memory.write_unaligned(tile.read_unaligned());
            }),
            8 => each::<u64>(regions, addresses, mask, tile, |memory, tile| {
                memory.write_unaligned(tile.read_unaligned());
            }),
            _ => panic!("elements have 1, 2, 4 or 8 bytes"),
        }
    }
    Ok(())
}

/// Calls a function for each element under the mask, with pointers to the element in memory and in
/// the tile.
///
/// # Safety
///
/// Every address under the mask is inside a region, and `tile` has an element for each address.
#[inline(always)]
unsafe fn each<T>(
    regions: &[Region<'_>],
    addresses: &[i64],
    mask: Option<&[u8]>,
    tile: *mut u8,
    copy: impl Fn(*mut T, *mut T),
) {
    let tile = tile.cast::<T>();
    let place = |element: usize, address: i64| {
        // SAFETY: the tile has this element.
        let tile = unsafe { tile.add(element) };
        let region = if let [region] = regions {
            region
        } else {
            find(regions, address, size_of::<T>()).expect("the addresses are checked before")
        };
        copy(region.pointer(address as u64).cast(), tile);
    };
    match mask {
        None => addresses.iter().enumerate().for_each(|(element, &address)| place(element, address)),
        Some(mask) => {
            for (element, (&address, &on)) in addresses.iter().zip(mask).enumerate() {
                if on != 0 {
                    place(element, address);
                }
            }
        }
    }
}

/// Returns the region that contains an element.
pub(super) fn find<'a, 'r>(regions: &'a [Region<'r>], address: i64, size: usize) -> Option<&'a Region<'r>> {
    regions.iter().find(|region| region.contains(address as u64, size))
}

/// Returns whether all elements under the mask are inside the region, without branches.
#[inline(always)]
fn all_inside(region: &Region<'_>, size: usize, addresses: &[i64], mask: Option<&[u8]>) -> bool {
    let base = region.address();
    if region.len() < size {
        return match mask {
            None => addresses.is_empty(),
            Some(mask) => mask.iter().all(|&on| on == 0),
        };
    }
    let last = (region.len() - size) as u64;
    let mut outside = 0;
    match mask {
        None => {
            for &address in addresses {
                outside |= u64::from((address as u64).wrapping_sub(base) > last);
            }
        }
        Some(mask) => {
            for (&address, &on) in addresses.iter().zip(mask) {
                outside |= u64::from((address as u64).wrapping_sub(base) > last) & u64::from(on);
            }
        }
    }
    outside == 0
}

/// Checks that the regions of the elements under the mask are writable. All of them must be inside
/// regions.
pub(super) fn check_writable(
    regions: &[Region<'_>],
    size: usize,
    addresses: &[i64],
    mask: Option<&[u8]>,
) -> Result<(), AccessError> {
    if regions.iter().all(Region::is_writable) {
        return Ok(());
    }
    for (element, &address) in addresses.iter().enumerate() {
        let on = mask.is_none_or(|mask| mask[element] != 0);
        if on && find(regions, address, size).is_some_and(|region| !region.is_writable()) {
            return Err(AccessError { kind: AccessErrorKind::ReadOnly, element, address: address as u64 });
        }
    }
    Ok(())
}

/// Returns a byte for each element. The byte is 1 for an element under the mask that ends in the
/// padding of a region.
pub fn in_padding(regions: &[Region<'_>], size: usize, addresses: &[i64], mask: Option<&[u8]>) -> Vec<u8> {
    let is_padding = |address: i64| {
        find(regions, address, size).is_none()
            && regions.iter().any(|region| region.pads(address as u64, size))
    };
    let is_on = |element: usize| mask.is_none_or(|mask| mask[element] != 0);
    let lane = |(element, &address): (usize, &i64)| u8::from(is_on(element) && is_padding(address));
    addresses.iter().enumerate().map(lane).collect()
}

/// Checks that every element under the mask is inside a region.
pub(super) fn check(
    regions: &[Region<'_>],
    size: usize,
    addresses: &[i64],
    mask: Option<&[u8]>,
) -> Result<(), AccessError> {
    assert!(mask.is_none_or(|mask| mask.len() == addresses.len()), "a mask of as many elements as addresses");
    if let [region] = regions
        && pulp::Arch::new().dispatch(
            #[inline(always)]
            || all_inside(region, size, addresses, mask),
        )
    {
        return Ok(());
    }
    for (element, &address) in addresses.iter().enumerate() {
        let on = mask.is_none_or(|mask| mask[element] != 0);
        if on && find(regions, address, size).is_none() {
            return Err(AccessError { kind: AccessErrorKind::OutOfBounds, element, address: address as u64 });
        }
    }
    Ok(())
}
