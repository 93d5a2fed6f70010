//! Defines tensors for tests: any dtype, dense, row-major, aligned to 16 bytes.

use half::{bf16, f16};
use tilewright::Dtype;
use tilewright::runtime::{Device, Pointer, Region, Value};

/// A tensor.
#[derive(Clone, Debug)]
pub struct Array {
    /// The element type.
    pub dtype: Dtype,
    /// The shape.
    pub shape: Vec<usize>,
    storage: Vec<u128>,
}

impl Array {
    /// Returns a tensor of zeros.
    pub fn zeros(dtype: Dtype, shape: &[usize]) -> Self {
        let elements: usize = shape.iter().product();
        let storage = vec![0; (elements * dtype.bytes()).div_ceil(16)];
        Self { dtype, shape: shape.to_vec(), storage }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns whether the tensor has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the kernel argument for the whole tensor.
    pub fn argument(&mut self) -> Value<'_> {
        let pointee = self.dtype;
        let region = Region::of(self.bytes_mut());
        Value::Pointer(Pointer { pointee, address: region.address(), region, device: Device::Cpu })
    }

    /// Returns the bytes of the elements.
    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.storage)[..self.len() * self.dtype.bytes()]
    }

    /// Returns the bytes of the elements for modification.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let length = self.len() * self.dtype.bytes();
        &mut bytemuck::cast_slice_mut(&mut self.storage)[..length]
    }

    /// Returns the element with a row-major index. For the 8-bit float formats, returns the bits of
    /// the element as an integer.
    pub fn get(&self, index: usize) -> f64 {
        let size = self.dtype.bytes();
        let mut word = [0; 8];
        word[..size].copy_from_slice(&self.bytes()[index * size..(index + 1) * size]);
        let bits = u64::from_le_bytes(word);
        let literal = tilewright::ir::Literal { dtype: self.dtype, bits };
        let number = literal.as_int().map(|value| value as f64).or_else(|| literal.as_float());
        number.unwrap_or(bits as f64)
    }

    /// Sets the element with a row-major index. For most float dtypes, the value is rounded. For
    /// the 8-bit float formats, the value is the element's bits.
    ///
    /// For an integer dtype, the value is truncated to an integer, which then wraps around. For
    /// `int1`, every value except 0 becomes 1.
    pub fn set(&mut self, index: usize, value: f64) {
        let size = self.dtype.bytes();
        let word = bits(self.dtype, value).to_le_bytes();
        self.bytes_mut()[index * size..(index + 1) * size].copy_from_slice(&word[..size]);
    }

    /// Returns a value rounded to the dtype.
    pub fn rounded(&self, value: f64) -> f64 {
        let mut one = Array::zeros(self.dtype, &[1]);
        one.set(0, value);
        one.get(0)
    }
}

fn bits(dtype: Dtype, value: f64) -> u64 {
    match dtype {
        Dtype::F64 => value.to_bits(),
        Dtype::F32 => u64::from((value as f32).to_bits()),
        Dtype::F16 => u64::from(f16::from_f64(value).to_bits()),
        Dtype::BF16 => u64::from(bf16::from_f64(value).to_bits()),
        Dtype::I1 => u64::from(value != 0.0),
        _ => value as i128 as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_kept_in_their_dtype() {
        let mut array = Array::zeros(Dtype::F16, &[2, 3]);
        array.set(5, 1.0 / 3.0);
        assert_eq!(array.get(5), f64::from(f16::from_f64(1.0 / 3.0)));
        let mut bytes = Array::zeros(Dtype::I8, &[3]);
        bytes.set(1, 200.0);
        assert_eq!([bytes.get(0), bytes.get(1), bytes.get(2)], [0.0, -56.0, 0.0]);
        assert_eq!(Array::zeros(Dtype::U8, &[1]).rounded(-1.0), 255.0);
    }
}
