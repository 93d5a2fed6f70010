//! Defines the rules of tensor copies (TMA). Only Gluon programs start and await them explicitly.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};
use tilewright_base::Code;
use tilewright_ir::{DeviceFn, Dtype, Shape, Type};

use super::arguments::Arguments;
use super::barriers::{mbarrier, predicate};
use super::clusters::no_blocks;
use super::convert::{cast, describe, tensor};
use super::descriptor::{self, DescriptorOf, element_type};
use super::device_function::{count, device};
use super::gluon::{layout_text, place};
use super::shared_access::tile_memory;
use super::{Caller, Op, Semantic, SemanticError, ValueOf};
use crate::descriptor::{Descriptor, DescriptorForm, DescriptorKind, Padding};
use crate::shared_memory::SharedMemory;
use crate::value::{Constant, Operand};

fn descriptor_for<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    (index, memory_index): (usize, usize),
    memory: &SharedMemory<Op<C>>,
    is_window: bool,
) -> Semantic<DescriptorOf<C>> {
    let found = match a.at(index)? {
        Operand::Descriptor(found)
            if found.form.kind == DescriptorKind::Tensor && found.form.window.is_some() == is_window =>
        {
            (**found).clone()
        }
        other => {
            let found = describe(c, &other.clone());
            let expected = if is_window { "an im2col descriptor" } else { "a tensor descriptor of blocks" };
            return Err(a.unexpected(index, expected, &found));
        }
    };
    let tiles = &memory.form.tiles;
    if let Some(layout) = found.form.layout.as_deref().filter(|layout| **layout != tiles.layout.to_string()) {
        let message = "the descriptor and the shared memory state different layouts";
        return Err(SemanticError::new(Code::LayoutMismatch, message)
            .argument(index, format!("its blocks have {layout}"))
            .argument(memory_index, format!("this has {}", tiles.layout))
            .hint("allocate the memory with `desc.layout`"));
    }
    if tiles.layout.is_padded() {
        let message = format!("no tensor copy accesses memory with {}, which has padding", tiles.layout);
        return Err(SemanticError::new(Code::LayoutMismatch, message)
            .argument(memory_index, format!("this is {}", memory.describe()))
            .hint("load a tile by `gl.load`, and store it by `smem.store`"));
    }
    let dtype = element_type(c, &found)?;
    // The shared memory may have leading axes of extent 1 that the blocks lack. The blocks may also
    // have such axes that the memory lacks.
    let significant =
        |shape: &Shape| -> Vec<u32> { shape.iter().copied().skip_while(|extent| *extent == 1).collect() };
    if dtype != tiles.dtype || significant(&found.form.block_shape) != significant(&tiles.shape) {
        let block = Type::tile(dtype, found.form.block_shape.clone());
        let memory = Type::tile(tiles.dtype, tiles.shape.clone());
        return Err(SemanticError::new(
            Code::TypeMismatch,
            format!("blocks {block} do not fit shared memory for {memory}"),
        )
        .argument(index, format!("its blocks are {block}"))
        .argument(memory_index, format!("this is for {memory}"))
        .hint("allocate the memory with `desc.dtype` and `desc.block_shape`"));
    }
    Ok(found)
}

fn append_block<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    index: usize,
    descriptor: &DescriptorOf<C>,
    operands: &mut SmallVec<[ValueOf<C>; 4]>,
) -> Semantic<()> {
    let strides = &descriptor.strides()[..descriptor.rank() - 1];
    operands.push(tensor(c, descriptor.base(), 0)?);
    for part in descriptor.shape().iter().chain(strides) {
        operands.push(tensor(c, part, 0)?);
    }
    append_list(c, a, (index, "coordinates"), descriptor.rank(), operands)
}

fn append_list<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    (index, what): (usize, &str),
    count: usize,
    operands: &mut SmallVec<[ValueOf<C>; 4]>,
) -> Semantic<()> {
    let items: Vec<Op<C>> = match a.at(index)? {
        Operand::Tuple(items) => items.iter().cloned().collect(),
        Operand::Constant(Constant::Tuple(items)) => {
            items.iter().map(|item| Operand::Constant(item.clone())).collect()
        }
        other => {
            let found = describe(c, &other.clone());
            return Err(a.unexpected(index, &format!("a list of {what}"), &found));
        }
    };
    if items.len() != count {
        let expected = format!("a list of {count} {what}");
        return Err(a.unexpected(index, &expected, &format!("a list of {}", items.len())));
    }
    for item in items {
        let value = tensor(c, &item, index)?;
        operands.push(cast(c, value, Dtype::I32)?);
    }
    Ok(())
}

/// Refuses a cache policy of a tensor copy.
fn no_cache_policy<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>, index: usize) -> Semantic<()> {
    if a.is_none(index) {
        return Ok(());
    }
    let found = describe(c, &a.at(index)?.clone());
    Err(a.unexpected(index, "None in this version of tilewright", &found).hint("leave it out"))
}

/// `async_load_im2col(tensor_desc, coord, offsets, barrier, result, pred, multicast,
/// cache_policy)`.
pub(super) fn async_load_im2col<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let memory = tile_memory(c, a, 4)?;
    let barrier = mbarrier(c, a, 3)?;
    let descriptor = descriptor_for(c, a, (0, 4), &memory, true)?;
    no_cache_policy(c, a, 7)?;
    let Some(window) = descriptor.form.window.as_deref().cloned() else {
        return Err(a.unexpected(0, "an im2col descriptor", "a tensor descriptor of blocks"));
    };
    let multicast = a.flag(c, 6)? && c.num_ctas() > 1;
    let mut operands = place(c, &memory)?;
    operands.extend(place(c, &barrier)?);
    operands.push(predicate(c, a, 5)?);
    operands.push(no_blocks(c)?);
    append_block(c, a, 1, &descriptor, &mut operands)?;
    append_list(c, a, (2, "offsets"), window.lower.len(), &mut operands)?;
    let (tiles, barriers) = (memory.form.tiles.clone(), barrier.form.tiles.clone());
    device(c, DeviceFn::WindowLoad { tiles, barriers, window, multicast }, operands)?;
    Ok(Operand::Constant(Constant::None))
}

/// `async_load(tensor_desc, coord, barrier, result, pred, multicast, cache_policy)`.
pub(super) fn async_load<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let memory = tile_memory(c, a, 3)?;
    let barrier = mbarrier(c, a, 2)?;
    let descriptor = descriptor_for(c, a, (0, 3), &memory, false)?;
    let is_multicast = a.flag(c, 5)? && c.num_ctas() > 1;
    no_cache_policy(c, a, 6)?;
    let mut operands = place(c, &memory)?;
    operands.extend(place(c, &barrier)?);
    operands.push(predicate(c, a, 4)?);
    if is_multicast {
        operands.push(no_blocks(c)?);
    }
    append_block(c, a, 1, &descriptor, &mut operands)?;
    let (tiles, barriers) = (memory.form.tiles.clone(), barrier.form.tiles.clone());
    let fills_nan = descriptor.form.padding == Padding::Nan;
    let function = if is_multicast {
        DeviceFn::MulticastLoad { tiles, barriers, fills_nan, at_lead: false }
    } else {
        DeviceFn::TensorLoad { tiles, barriers, fills_nan }
    };
    device(c, function, operands)?;
    Ok(Operand::Constant(Constant::None))
}

/// `async_store(tensor_desc, coord, src, cache_policy)`.
pub(super) fn async_store<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let memory = tile_memory(c, a, 2)?;
    let descriptor = descriptor_for(c, a, (0, 2), &memory, false)?;
    no_cache_policy(c, a, 3)?;
    let mut operands = place(c, &memory)?;
    append_block(c, a, 1, &descriptor, &mut operands)?;
    let tiles = memory.form.tiles.clone();
    device(c, DeviceFn::TensorStore { tiles }, operands)?;
    Ok(Operand::Constant(Constant::None))
}

/// `make_tensor_descriptor(base, shape, strides, block_shape, layout, padding_option)`.
pub(super) fn make_tensor_descriptor<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let layout = layout_text(c, a, 4)?.ok_or_else(|| a.unexpected(4, "a layout", "None"))?;
    let own = |index: usize| a.at(index).map(|value| (value.clone(), index));
    let arguments = [own(0)?, own(1)?, own(2)?, own(3)?, own(5)?];
    let made = a.call(c, descriptor::make_tensor_descriptor, arguments)?;
    let Operand::Descriptor(made) = made else { return Ok(made) };
    let form = DescriptorForm { layout: Some(layout.into()), ..(*made.form).clone() };
    let parts = made.parts().to_vec();
    let made = Descriptor::new(Arc::new(form), parts);
    made.map(|made| Operand::Descriptor(Box::new(made)))
        .ok_or_else(|| SemanticError::new(Code::TypeMismatch, "a descriptor has all its parts"))
}

/// `store_wait(pendings, read_only)`.
pub(super) fn store_wait<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (pending, complete) = (count(c, a, 0)?, !a.flag(c, 1)?);
    device(c, DeviceFn::TensorStoreWait { pending, complete }, smallvec![])?;
    Ok(Operand::Constant(Constant::None))
}

/// `fence_async_shared(cluster)`.
pub(super) fn fence<C: Caller + ?Sized>(c: &mut C, _: &Arguments<'_, C>) -> Semantic<Op<C>> {
    device(c, DeviceFn::FenceProxy {}, smallvec![])?;
    Ok(Operand::Constant(Constant::None))
}
