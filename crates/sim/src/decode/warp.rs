//! Decodes warp-level instructions: shuffles, votes, matches and reductions.
//!
//! A lane executes an instruction with a member mask after all lanes of its mask have arrived or
//! exited.

use tilewright_ptx::isa::{self, MatchMode, ScalarType, ShuffleMode, Source, VoteMode, WarpReduction};

use super::arithmetic::Operands;
use super::{Action, Class, Decoded, Decoder, Gather};

use crate::context::{Context, Flow};
use crate::fault::FaultKind;
use crate::numeric::float::Mode;
use crate::numeric::low;
use crate::registers::{LANES, Slot, lanes_of};

impl Decoder<'_> {
    /// Decodes the member mask.
    fn members(&mut self, mask: Source) -> Decoded<Slot> {
        self.class = Class::Warp;
        let mask = self.source(mask, ScalarType::B32)?;
        self.gather = Gather::Members(mask);
        Ok(mask)
    }

    pub(super) fn decode_shfl(&mut self, i: &isa::Shfl) -> Decoded {
        self.members(i.mask)?;
        let (d, _) = self.destination(i.d.first);
        let p = i.d.second.map(|p| self.destination(p).0);
        let u32 = ScalarType::U32;
        let (a, b, c) = (self.source(i.a, i.ty)?, self.source(i.b, u32)?, self.source(i.c, u32)?);
        let mode = i.mode;
        Ok(Action::Compute(Box::new(move |registers, mask| {
            let (values, by, clamp) = (*registers.get(a), registers.get(b), registers.get(c));
            let from: [(usize, bool); LANES] =
                std::array::from_fn(|lane| source_lane(mode, lane, by[lane], clamp[lane]));
            registers.set(d, mask, &from.map(|(lane, _)| values[lane]));
            if let Some(p) = p {
                registers.set(p, mask, &from.map(|(_, is_inside)| u64::from(is_inside)));
            }
        })))
    }

    pub(super) fn vote(&mut self, i: &isa::Vote) -> Decoded {
        let members = self.members(i.mask)?;
        let (d, (p, negated), mode) = (self.register(i.d), self.predicate(i.a), i.mode);
        Ok(Action::Compute(Box::new(move |registers, mask| {
            let holds = registers.mask(p) ^ if negated == 1 { u32::MAX } else { 0 };
            let out = registers.get(members).map(|members| {
                let among = members as u32 & mask;
                let yes = holds & among;
                match mode {
                    VoteMode::All => u64::from(yes == among),
                    VoteMode::Any => u64::from(yes != 0),
                    VoteMode::Uniform => u64::from(yes == among || yes == 0),
                    VoteMode::Ballot => u64::from(yes),
                }
            });
            registers.set(d, mask, &out);
        })))
    }

    pub(super) fn decode_match(&mut self, i: &isa::Match) -> Decoded {
        let members = self.members(i.mask)?;
        let (d, a, mode) = (self.destination(i.d.first).0, self.source(i.a, i.ty)?, i.mode);
        let p = i.d.second.map(|p| self.destination(p).0);
        Ok(Action::Compute(Box::new(move |registers, mask| {
            let (values, members) = (*registers.get(a), *registers.get(members));
            let equal: [u64; LANES] = std::array::from_fn(|lane| {
                let among = members[lane] as u32 & mask;
                let same = lanes_of(among).filter(|other| values[*other] == values[lane]);
                let same = same.fold(0, |found, other| found | 1 << other);
                match mode {
                    MatchMode::Any => same,
                    MatchMode::All if same as u32 == among => same,
                    MatchMode::All => 0,
                }
            });
            registers.set(d, mask, &equal);
            if let Some(p) = p {
                registers.set(p, mask, &equal.map(|found| u64::from(found != 0)));
            }
        })))
    }

    pub(super) fn decode_redux(&mut self, i: &isa::Redux) -> Decoded {
        let members = self.members(i.mask)?;
        let (d, a, operation) = (self.register(i.d), self.source(i.a, i.ty)?, i.operation);
        let (operands, bits, absolute, nan) = (Operands::of(i.ty)?, i.ty.bits(), i.abs, i.nan);
        let combine = move |x: u64, y: u64| match (operation, operands) {
            (WarpReduction::And, _) => x & y,
            (WarpReduction::Or, _) => x | y,
            (WarpReduction::Xor, _) => x ^ y,
            (WarpReduction::Add, _) => low(x.wrapping_add(y), bits),
            (WarpReduction::Min | WarpReduction::Max, Operands::Float(kind) | Operands::Floats(kind)) => {
                Mode::plain(kind).extremum(x, y, operation == WarpReduction::Max, nan)
            }
            (WarpReduction::Min | WarpReduction::Max, Operands::Int(int) | Operands::Ints(int)) => {
                if (int.value(x) > int.value(y)) == (operation == WarpReduction::Max) { x } else { y }
            }
        };
        let sign = if absolute { 1_u64 << (bits - 1) } else { 0 };
        Ok(Action::Compute(Box::new(move |registers, mask| {
            let (values, members) = (*registers.get(a), *registers.get(members));
            let out: [u64; LANES] = std::array::from_fn(|lane| {
                let among = members[lane] as u32 & mask;
                lanes_of(among).map(|lane| values[lane] & !sign).reduce(combine).unwrap_or(0)
            });
            registers.set(d, mask, &out);
        })))
    }

    pub(super) fn elect(&mut self, i: &isa::Elect) -> Decoded {
        let members = self.members(i.mask)?;
        let d = self.destination(i.d.first).0;
        let p = i.d.second.map(|p| self.destination(p).0);
        Ok(Action::Compute(Box::new(move |registers, mask| {
            let leaders =
                registers.get(members).map(|members| u64::from((members as u32 & mask).trailing_zeros()));
            registers.set(d, mask, &leaders);
            if let Some(p) = p {
                let is_leader = std::array::from_fn(|lane| u64::from(leaders[lane] == lane as u64));
                registers.set(p, mask, &is_leader);
            }
        })))
    }

    pub(super) fn decode_activemask(&mut self, i: &isa::Activemask) -> Action {
        self.class = Class::Warp;
        let d = self.register(i.d);
        Action::Compute(Box::new(move |registers, mask| {
            registers.set(d, mask, &[u64::from(mask); LANES]);
        }))
    }

    pub(super) fn decode_bar_warp_sync(&mut self, i: &isa::BarWarpSync) -> Decoded {
        self.members(i.mask)?;
        self.class = Class::Barrier;
        let synchronize = |context: &mut Context<'_>| {
            context.agent.lane_phase += 1;
            Ok(Flow::Next)
        };
        Ok(Action::Execute(Box::new(synchronize)))
    }

    /// Checks the operands of `setmaxnreg`, which has no effect in the simulator.
    pub(super) fn decode_setmaxnreg(&mut self, i: &isa::Setmaxnreg) -> Decoded {
        self.class = Class::Hint;
        let Source::Immediate(isa::Immediate::Integer(count)) = i.count else {
            return Err(FaultKind::Illegal("the count of `setmaxnreg` is not a constant".into()));
        };
        if !(24..=256).contains(&count) || count % 8 != 0 {
            return Err(FaultKind::Illegal(format!(
                "`setmaxnreg` with {count} registers: the count has to be a multiple of 8 from 24 to 256"
            )));
        }
        self.gather = Gather::Warp;
        Ok(Action::Nothing)
    }
}

fn source_lane(mode: ShuffleMode, lane: usize, b: u64, c: u64) -> (usize, bool) {
    let (lane, b, clamp, segment) = (lane as i64, (b & 31) as i64, (c & 31) as i64, (c >> 8 & 31) as i64);
    let last = lane & segment | clamp & !segment;
    let (from, is_inside) = match mode {
        ShuffleMode::Up => (lane - b, lane - b >= last),
        ShuffleMode::Down => (lane + b, lane + b <= last),
        ShuffleMode::Butterfly => (lane ^ b, lane ^ b <= last),
        ShuffleMode::Index => {
            let from = lane & segment | b & !segment;
            (from, from <= last)
        }
    };
    (if is_inside { from } else { lane } as usize, is_inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffles_read_from_the_lanes_that_the_isa_says() {
        // The whole warp: the clamp is 0x1f, or 0 for `up`.
        assert_eq!(source_lane(ShuffleMode::Down, 3, 4, 0x1f), (7, true));
        assert_eq!(source_lane(ShuffleMode::Down, 30, 4, 0x1f), (30, false));
        assert_eq!(source_lane(ShuffleMode::Up, 3, 4, 0), (3, false));
        assert_eq!(source_lane(ShuffleMode::Up, 7, 4, 0), (3, true));
        assert_eq!(source_lane(ShuffleMode::Butterfly, 5, 16, 0x1f), (21, true));
        assert_eq!(source_lane(ShuffleMode::Index, 5, 9, 0x1f), (9, true));
        // Segments of 8 lanes: the mask is 0x18 in bits 8 to 12.
        assert_eq!(source_lane(ShuffleMode::Down, 6, 2, 0x181f), (6, false));
        assert_eq!(source_lane(ShuffleMode::Down, 12, 2, 0x181f), (14, true));
        assert_eq!(source_lane(ShuffleMode::Up, 9, 2, 0x1800), (9, false));
        assert_eq!(source_lane(ShuffleMode::Index, 13, 1, 0x181f), (9, true));
    }
}
