//! Builds the kernels of random programs that multiply matrices, and the memory for their launches.

use tilewright::frontend::{Constant, DescriptorForm, DescriptorKind, Padding, Tuple};
use tilewright::runtime::{Pointer, Region, Value};
use tilewright::{Device, Kernel, Module, Options};
use tilewright_fuzz::matmul::{Argument, Program};

/// The memory of a launch.
pub struct Memory(pub Vec<Vec<u128>>);

fn as_bytes(words: &mut [u128]) -> &mut [u8] {
    bytemuck::cast_slice_mut(words)
}

impl Memory {
    /// Returns the initial memory of the arguments.
    pub fn new(program: &Program) -> Self {
        let allocate = |argument: &Argument| match argument {
            Argument::Number(_) => Vec::new(),
            Argument::Memory { bytes, skew, .. } => {
                let mut words = vec![0; (skew + bytes.len()).div_ceil(16)];
                as_bytes(&mut words)[*skew..][..bytes.len()].copy_from_slice(bytes);
                words
            }
        };
        Self(program.arguments.iter().map(|(_, argument)| allocate(argument)).collect())
    }

    /// Returns a value for each parameter.
    pub fn values<'m>(&'m mut self, program: &Program) -> Vec<Value<'m>> {
        let bound = self.0.iter_mut().zip(&program.arguments);
        bound
            .map(|(words, (_, argument))| match argument {
                Argument::Number(number) => Value::Int(*number),
                Argument::Memory { dtype, bytes, skew, descriptor } => {
                    let region = Region::of(&mut as_bytes(words)[*skew..][..bytes.len()]);
                    let address = region.address();
                    let base =
                        Value::Pointer(Pointer { pointee: *dtype, address, region, device: Device::Cpu });
                    let Some((extents, stride, block)) = descriptor else { return base };
                    let form = DescriptorForm {
                        kind: DescriptorKind::Tensor,
                        block_shape: (*block).into(),
                        padding: Padding::Zero,
                        layout: None,
                        window: None,
                    };
                    let integers = extents.iter().chain([stride]).map(|&number| Value::Int(number));
                    let parts = std::iter::once(base).chain(integers).collect();
                    Value::Tuple(Tuple::of_descriptor(form.into(), parts))
                }
            })
            .collect()
    }
}

/// Returns the launch options of a program.
pub fn options(program: &Program) -> Options {
    let mut options = Options::default();
    for (name, number) in [("num_warps", program.num_warps), ("num_stages", program.num_stages)] {
        options.set_named(name, &Constant::Int(number.into())).expect("it is an option");
    }
    options
}

/// Returns the kernel of a program.
pub fn kernel(program: &Program) -> Kernel {
    let module = Module::from_source("k.py", program.source.clone()).expect("it is Python");
    module.kernel("k").expect("it is there")
}
