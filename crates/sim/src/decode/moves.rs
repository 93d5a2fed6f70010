//! Decodes moves and conversions of addresses.

use tilewright_ptx::isa::{self, ScalarType, StateSpace};

use super::lift::{map1, map2};
use super::{Action, Class, Decoded, Decoder};
use crate::context::{Context, Flow};
use crate::memory::{LOCAL_WINDOW, PARAM_WINDOW, RANK_SHIFT, SHARED_WINDOW, Space, resolve};
use crate::numeric::low;
use crate::registers::lanes_of;

impl Decoder<'_> {
    pub(super) fn decode_mov(&mut self, i: &isa::Mov) -> Decoded {
        self.class = Class::Move;
        let destinations = self.destinations(&i.d);
        let count = destinations.len().max(i.a.0.len());
        let part = i.ty.bits() / count as u32;
        let part_type = match (count, part) {
            (1, _) => i.ty,
            (_, 8) => ScalarType::B8,
            (_, 16) => ScalarType::B16,
            (_, 32) => ScalarType::B32,
            // tidy: wildcard because only 64 bits remain: half of a value of 128 bits.
            _ => ScalarType::B64,
        };
        let sources = self.sources(&i.a, part_type)?;
        match (&destinations[..], &sources[..]) {
            (&[(d, _)], &[a]) if i.ty != ScalarType::B128 => Ok(map1(d, a, |a| a)),
            (&[(d, _)], &[low_part, high_part]) if part <= 32 => {
                Ok(map2(d, [low_part, high_part], move |a, b| low(a, part) | b << part))
            }
            _ => {
                let destinations: Vec<_> = destinations.into_iter().map(|(slot, _)| slot).collect();
                Ok(Action::Execute(Box::new(move |context: &mut Context<'_>| {
                    for lane in lanes_of(context.lanes) {
                        let mut whole = 0_u128;
                        match sources[..] {
                            [a] => {
                                whole = u128::from(context.get(a, lane));
                                if destinations.len() == 2 && part == 64 || part == 128 {
                                    whole |= u128::from(context.get(a.next(), lane)) << 64;
                                }
                            }
                            _ => {
                                for (index, source) in sources.iter().enumerate() {
                                    let value = low(context.get(*source, lane), part);
                                    whole |= u128::from(value) << (part * index as u32);
                                }
                            }
                        }
                        match destinations[..] {
                            [d] => {
                                context.set(d, lane, whole as u64);
                                if part * count as u32 == 128 {
                                    context.set(d.next(), lane, (whole >> 64) as u64);
                                }
                            }
                            _ => {
                                for (index, destination) in destinations.iter().enumerate() {
                                    let value = (whole >> (part * index as u32)) as u64;
                                    context.set(*destination, lane, low(value, part));
                                }
                            }
                        }
                    }
                    Ok(Flow::Next)
                })))
            }
        }
    }

    pub(super) fn decode_cvta(&mut self, i: &isa::Cvta) -> Decoded {
        self.class = Class::Integer;
        let (d, a) = (self.register(i.d), self.source(i.a, i.ty)?);
        let window = match i.space {
            StateSpace::Global | StateSpace::Const => 0,
            StateSpace::Shared | StateSpace::SharedCta | StateSpace::SharedCluster => SHARED_WINDOW,
            StateSpace::Local => LOCAL_WINDOW,
            StateSpace::Param | StateSpace::ParamEntry | StateSpace::ParamFunction => PARAM_WINDOW,
        };
        let to = i.to;
        Ok(map1(d, a, move |a| if to { a.wrapping_sub(window) } else { a.wrapping_add(window) }))
    }

    pub(super) fn decode_isspacep(&mut self, i: &isa::Isspacep) -> Decoded {
        self.class = Class::Integer;
        let (d, a) = (self.register(i.d), self.source(i.a, ScalarType::U64)?);
        let (space, own) = match i.space {
            // Constants are in global memory. Programs obtain their addresses only from variables.
            StateSpace::Global | StateSpace::Const => (Space::Global, false),
            StateSpace::Shared | StateSpace::SharedCta => (Space::Shared, true),
            StateSpace::SharedCluster => (Space::Shared, false),
            StateSpace::Local => (Space::Local, false),
            StateSpace::Param | StateSpace::ParamEntry | StateSpace::ParamFunction => (Space::Param, false),
        };
        Ok(map1(d, a, move |a| {
            let (found, address) = resolve(a);
            u64::from(found == space && (!own || address >> RANK_SHIFT == 0))
        }))
    }

    pub(super) fn decode_mapa(&mut self, i: &isa::Mapa) -> Decoded {
        self.class = Class::Integer;
        let (d, ab) = (self.register(i.d), [self.source(i.a, i.ty)?, self.source(i.b, ScalarType::U32)?]);
        let offsets = (1_u64 << RANK_SHIFT) - 1;
        let window = if i.space.is_none() { SHARED_WINDOW } else { 0 };
        Ok(map2(d, ab, move |a, rank| window + ((rank + 1) << RANK_SHIFT | a & offsets)))
    }

    pub(super) fn decode_getctarank(&mut self, i: &isa::Getctarank) -> Decoded {
        self.class = Class::Integer;
        let (d, a) = (self.register(i.d), self.source(i.a, i.ty)?);
        Ok(Action::Execute(Box::new(move |context: &mut Context<'_>| {
            for lane in lanes_of(context.lanes) {
                let rank = low(context.get(a, lane), 32) >> RANK_SHIFT;
                let rank = if rank == 0 { context.rank as u64 } else { rank - 1 };
                context.set(d, lane, rank);
            }
            Ok(Flow::Next)
        })))
    }

    /// Decodes a cache policy, which has no effect in the simulator.
    pub(super) fn decode_policy(&mut self, d: isa::RegisterId) -> Action {
        self.class = Class::Hint;
        let (d, none) = (self.register(d), self.constant(0));
        map1(d, none, |none| none)
    }
}
