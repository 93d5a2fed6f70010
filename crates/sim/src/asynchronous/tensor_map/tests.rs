//! Compares boxes with loops over elements, and tests the limits of `cuTensorMapEncodeTiled`.

use super::*;

fn map(data_type: TensorDataType, extents: &[u64], box_extents: &[u32]) -> TensorMap {
    let mut strides = Vec::new();
    let mut bytes = u64::from(data_type.bytes());
    for extent in &extents[..extents.len() - 1] {
        bytes = (bytes * extent).next_multiple_of(16);
        strides.push(bytes);
    }
    TensorMap {
        data_type,
        address: 1 << 20,
        extents: extents.to_vec(),
        strides,
        box_extents: box_extents.to_vec(),
        element_strides: vec![1; extents.len()],
        swizzle: Swizzle::None,
        fill: OutOfBoundsFill::Zero,
        pixels: None,
    }
}

#[test]
fn maps_survive_encoding() {
    let mut all = map(TensorDataType::Bf16, &[100, 7, 5, 3, 1 << 32], &[64, 7, 2, 3, 256]);
    all.element_strides = vec![1, 2, 3, 8, 1];
    all.swizzle = Swizzle::Bytes128;
    all.fill = OutOfBoundsFill::Nan;
    assert_eq!(TensorMap::decode(&all.encode().unwrap()), Ok(all));
    let one = map(TensorDataType::U8, &[5], &[16]);
    assert_eq!(TensorMap::decode(&one.encode().unwrap()), Ok(one));
    assert!(TensorMap::decode(&[0; TENSOR_MAP_BYTES]).is_err());
}

#[test]
fn maps_can_be_made_field_by_field() {
    let made = map(TensorDataType::F16, &[300, 20], &[64, 8]);
    let mut bytes = [0; TENSOR_MAP_BYTES];
    let replace = |bytes: &mut [u8], field: Field, value: u64| {
        for (at, patch) in field.patches(value) {
            bytes[at..at + patch.len()].copy_from_slice(&patch);
        }
    };
    let mut fields = vec![(Field::Address, 1 << 20), (Field::Rank, 1), (Field::ElementType, 6)];
    for (dimension, (extent, box_extent)) in [(300, 64), (20, 8)].into_iter().enumerate() {
        fields.push((Field::Extent(dimension), extent));
        fields.push((Field::BoxExtent(dimension), box_extent));
        fields.push((Field::ElementStride(dimension), 1));
    }
    fields.extend([(Field::Stride(0), 608), (Field::Interleave, 0), (Field::Swizzle, 0), (Field::Fill, 0)]);
    for (field, value) in fields {
        replace(&mut bytes, field, value);
    }
    assert_eq!(TensorMap::decode(&bytes), Ok(made));
    replace(&mut bytes, Field::Swizzle, 1);
    assert!(TensorMap::decode(&bytes).is_err(), "rows of 128 bytes have no swizzle of 32");
}

#[test]
fn maps_that_the_driver_rejects_are_rejected() {
    let good = map(TensorDataType::F16, &[128, 64], &[32, 16]);
    assert!(good.encode().is_ok());
    let refused = |change: &dyn Fn(&mut TensorMap)| {
        let mut map = good.clone();
        change(&mut map);
        map.encode().is_err()
    };
    assert!(refused(&|map| map.address += 8));
    assert!(refused(&|map| map.strides[0] += 8));
    assert!(refused(&|map| map.strides[0] = 1 << 40));
    assert!(refused(&|map| map.extents[1] = 0));
    assert!(refused(&|map| map.box_extents[1] = 257));
    assert!(refused(&|map| map.box_extents[0] = 4));
    assert!(refused(&|map| map.element_strides[1] = 9));
    assert!(refused(&|map| map.strides.clear()));
    assert!(refused(&|map| map.swizzle = Swizzle::Bytes32));
    assert!(!refused(&|map| map.swizzle = Swizzle::Bytes64));
    assert!(refused(&|map| {
        map.data_type = TensorDataType::U16;
        map.fill = OutOfBoundsFill::Nan;
    }));
}

#[test]
fn boxes_take_the_elements_that_loops_take() {
    let mut map = map(TensorDataType::F32, &[20, 6, 4], &[8, 5, 2]);
    map.element_strides = vec![1, 2, 1];
    for coordinates in [[0, 0, 0], [-3, 1, 2], [16, -2, 3], [19, 5, -1], [40, 0, 0], [4, 4, 7]] {
        let mut rows = map.rows(&coordinates);
        let mut offset = 0;
        for z in 0..2 {
            // ceil(5 / 2) = 3 elements along dimension 1.
            for y in [0, 2, 4] {
                let row = rows.next().expect("the box has 6 rows");
                let at = [coordinates[0], coordinates[1] + y, coordinates[2] + z];
                let linear = i64::from(at[0]) * 4 + i64::from(at[1]) * 80 + i64::from(at[2]) * 480;
                assert_eq!(row.address as i64, (1 << 20) + linear);
                assert_eq!(row.offset, offset);
                for x in 0..8 {
                    let inside =
                        (0..20).contains(&(at[0] + x)) && (0..6).contains(&at[1]) && (0..4).contains(&at[2]);
                    for byte in x as u32 * 4..x as u32 * 4 + 4 {
                        assert_eq!(row.inside.contains(&byte), inside, "{coordinates:?} {at:?} {x}");
                    }
                }
                offset += 32;
            }
        }
        assert_eq!(rows.next(), None);
        assert_eq!(map.box_bytes(), offset);
    }
}

#[test]
fn rows_outside_are_zeros_or_nans() {
    let mut map = map(TensorDataType::Bf16, &[64], &[8]);
    assert_eq!(map.fill_row(), [0; 16]);
    map.fill = OutOfBoundsFill::Nan;
    assert!(
        map.fill_row()
            .chunks(2)
            .all(|element| { half::bf16::from_le_bytes([element[0], element[1]]).is_nan() })
    );
}

/// Returns a map of images of 5 by 4 pixels with 64 channels. A copy moves 32 channels.
fn pixels(lower: [i32; 2], upper: [i32; 2], pixels: u32) -> TensorMap {
    let pixels = PixelBox { lower: lower.to_vec(), upper: upper.to_vec(), pixels };
    TensorMap { pixels: Some(pixels), ..map(TensorDataType::F16, &[64, 4, 5, 3], &[32, 1, 1, 1]) }
}

#[test]
fn maps_of_pixels_survive_encoding() {
    let mut all = pixels([-1, 3], [-128, 127], 1024);
    all.element_strides = vec![1, 2, 3, 1];
    assert_eq!(TensorMap::decode(&all.encode().unwrap()), Ok(all));
}

#[test]
fn rules_of_maps_of_pixels() {
    let message = |map: TensorMap| map.encode().unwrap_err().to_string();
    assert!(message(pixels([-129, 0], [0, 0], 8)).contains("from -128 to 127"));
    assert!(message(pixels([0, 0], [0, 0], 1025)).contains("1 to 1024"));
    let flat = TensorMap { extents: vec![64, 4], strides: vec![128], ..pixels([0, 0], [0, 0], 8) };
    let flat = TensorMap { box_extents: vec![32, 1], element_strides: vec![1, 1], ..flat };
    assert!(message(flat).contains("3 to 5"));
}

#[test]
fn pixels_follow_each_other_in_their_bounding_box() {
    let mut map = pixels([-1, 0], [0, -1], 40);
    map.element_strides = vec![1, 2, 1, 1];
    let found = map.pixels.as_ref().unwrap().rows(&map, &[32, 1, 2, 0], &[1, -1]);
    // The box has the columns -1, 1 and 3, and the rows 0 to 3.
    let mut all =
        (0..4).flat_map(|image| (0..4).flat_map(move |row| [-1, 1, 3].map(|column| (image, row, column))));
    let start = all.by_ref().position(|place| place == (0, 2, 1)).unwrap();
    assert_eq!(start, 7);
    let expected = std::iter::once((0, 2, 1)).chain(all);
    assert_eq!(found.len(), 40);
    for (number, (row, (image, line, column))) in found.iter().zip(expected).enumerate() {
        let (line, column) = (line - 1, column + 1);
        let is_inside = image < 3 && (0..5).contains(&line) && (0..4).contains(&column);
        let element = ((image * 5 + line) * 4 + column) * 64 + 32;
        assert_eq!(row.offset, number as u32 * 64);
        assert_eq!(row.inside, if is_inside { 0..64 } else { 0..0 }, "{number}");
        if is_inside {
            assert_eq!(row.address, map.address + 2 * element as u64, "{number}");
        }
    }
    let outside = map.pixels.as_ref().unwrap().misplaced(&map, &[0, -2, 0, 0]).unwrap();
    assert!(outside.contains("begins at -2 along dimension 1, outside of its bounding box from -1 to 3"));
    assert_eq!(map.pixels.as_ref().unwrap().misplaced(&map, &[0, 3, 3, 7]), None);
}
