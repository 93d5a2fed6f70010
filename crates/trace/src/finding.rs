//! Defines the findings of a sanitizer in a launch, as the trace records them.

use serde::Serialize;

use crate::bytes::{Decoder, Encoder};
use crate::model::{Launch, Tensor};

/// A finding of a sanitizer.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The name of the check that found it.
    pub check: String,
    /// The code of the diagnostic that reports the finding.
    pub code: String,
    /// The first line of the diagnostic.
    pub message: String,
    /// The whole diagnostic.
    pub text: String,
    /// The source location of the finding: file, line and column.
    pub place: Option<(String, u32, u32)>,
    /// For a race, the source location of the earlier access.
    pub other: Option<(String, u32, u32)>,
    /// The indices, one for each axis, of the tile element in the first occurrence. For a scalar,
    /// the list is empty.
    pub lane: Vec<u32>,
    /// The number of occurrences.
    pub count: u64,
    /// The first occurrences.
    pub occurrences: Vec<Occurrence>,
}

/// An occurrence of a finding.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Occurrence {
    /// The linear index of the program, x varying fastest.
    pub program: u64,
    /// The pointer parameter through which memory is accessed, and the index of the accessed
    /// element. The index is relative to the address of the parameter.
    pub element: Option<(String, i64)>,
    /// For a race, the linear index of the program that made the earlier access.
    pub other: Option<u64>,
}

fn put_place(out: &mut Vec<u8>, place: Option<&(String, u32, u32)>) {
    out.number(place.is_some().into());
    if let Some((file, line, column)) = place {
        out.text(file);
        out.number((*line).into());
        out.number((*column).into());
    }
}

/// Reads whether an optional value follows: a number that is not 0.
fn follows(from: &mut Decoder<'_>) -> Option<bool> {
    from.number().map(|is_there| is_there != 0)
}

fn place(from: &mut Decoder<'_>) -> Option<(String, u32, u32)> {
    Some((from.text()?, from.small()?, from.small()?))
}

impl Finding {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for text in [&self.check, &self.code, &self.message, &self.text] {
            out.text(text);
        }
        put_place(out, self.place.as_ref());
        put_place(out, self.other.as_ref());
        out.list(&self.lane, |out, &index| out.number(index.into()));
        out.number(self.count);
        out.list(&self.occurrences, |out, occurrence| {
            out.number(occurrence.program);
            out.number(occurrence.element.is_some().into());
            if let Some((name, index)) = &occurrence.element {
                out.text(name);
                out.signed(*index);
            }
            out.number(occurrence.other.map_or(0, |other| other + 1));
        });
    }

    pub(crate) fn decode(from: &mut Decoder<'_>) -> Option<Self> {
        Some(Self {
            check: from.text()?,
            code: from.text()?,
            message: from.text()?,
            text: from.text()?,
            place: if follows(from)? { Some(place(from)?) } else { None },
            other: if follows(from)? { Some(place(from)?) } else { None },
            lane: from.list(Decoder::small)?,
            count: from.number()?,
            occurrences: from.list(|from| {
                Some(Occurrence {
                    program: from.number()?,
                    element: if follows(from)? { Some((from.text()?, from.signed()?)) } else { None },
                    other: from.number()?.checked_sub(1),
                })
            })?,
        })
    }

    /// Converts the finding for a page, in which indices replace the names of files and tensors.
    pub(crate) fn page(&self, launch: &Launch) -> FindingPage<'_> {
        let place = |(file, line, column): &(String, u32, u32)| {
            let index = launch.files.iter().position(|known| known.name == *file);
            [index.map_or(-1, |index| index as i64), i64::from(*line), i64::from(*column)]
        };
        let occurrence = |occurrence: &Occurrence| {
            let (tensor, place) = occurrence.tensor_element(launch).unwrap_or((-1, -1));
            let other = occurrence.other.map_or(-1, |other| other as i64);
            [occurrence.program as i64, tensor, place, other]
        };
        FindingPage {
            check: &self.check,
            code: &self.code,
            message: &self.message,
            text: &self.text,
            place: self.place.as_ref().map(place),
            other: self.other.as_ref().map(place),
            lane: &self.lane,
            count: self.count,
            occurrences: self.occurrences.iter().map(occurrence).collect(),
        }
    }
}

#[derive(Serialize)]
pub(crate) struct FindingPage<'a> {
    check: &'a str,
    code: &'a str,
    message: &'a str,
    text: &'a str,
    /// File, line and column. The file is -1 if the trace does not contain it.
    place: Option<[i64; 3]>,
    other: Option<[i64; 3]>,
    lane: &'a [u32],
    count: u64,
    /// For each occurrence: program, tensor, element and other program. A missing item is -1.
    occurrences: Vec<[i64; 4]>,
}

impl Occurrence {
    /// Returns the index of the tensor that contains the element, and the row-major index of the
    /// element.
    fn tensor_element(&self, launch: &Launch) -> Option<(i64, i64)> {
        let (name, index) = self.element.as_ref()?;
        let parameter = launch.parameters.iter().find(|parameter| parameter.name == *name)?;
        let is_in = |tensor: &Tensor| {
            let bytes = index.wrapping_mul(i64::from(tensor.size));
            tensor.element_index(parameter.bits.wrapping_add(bytes as u64))
        };
        let own = launch.tensors.iter().enumerate().filter(|(_, tensor)| tensor.name == *name);
        let others = launch.tensors.iter().enumerate().filter(|(_, tensor)| tensor.name != *name);
        own.chain(others).find_map(|(number, tensor)| Some((number as i64, is_in(tensor)? as i64)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Parameter;

    fn finding() -> Finding {
        let occurrence =
            |program, index, other| Occurrence { program, element: Some(("x".into(), index)), other };
        Finding {
            check: "race".into(),
            code: "TW0221".into(),
            message: "two programs race".into(),
            text: "error[TW0221]: two programs race\n".into(),
            place: Some(("k.py".into(), 7, 5)),
            other: Some(("other.py".into(), 8, 1)),
            lane: vec![3, 1],
            count: 9,
            occurrences: vec![
                occurrence(2, -1, Some(0)),
                occurrence(3, 4, None),
                Occurrence { program: 1, ..Occurrence::default() },
            ],
        }
    }

    #[test]
    fn findings_round_trip() {
        for found in [finding(), Finding::default()] {
            let mut bytes = Vec::new();
            found.encode(&mut bytes);
            let mut from = Decoder(&bytes);
            assert_eq!(Finding::decode(&mut from), Some(found));
            assert!(from.0.is_empty());
            for length in 0..bytes.len() {
                assert_eq!(Finding::decode(&mut Decoder(&bytes[..length])), None);
            }
        }
    }

    #[test]
    fn elements_are_indices_in_tensors() {
        let tensor = |name: &str, address, strides| Tensor {
            name: name.into(),
            dtype: "fp32".into(),
            size: 4,
            address,
            shape: vec![2, 3],
            strides,
        };
        let launch = Launch {
            files: vec![crate::File { name: "k.py".into(), text: String::new(), first_line: 1 }],
            parameters: vec![Parameter { name: "x".into(), dtype: "*fp32".into(), bits: 1024 }],
            // `x` has contiguous columns, and `y` is directly before `x` in memory.
            tensors: vec![tensor("x", 1024, vec![1, 2]), tensor("y", 1000, vec![3, 1])],
            ..Launch::default()
        };
        let text = crate::json::to_text(&finding().page(&launch));
        assert!(text.contains("\"occurrences\":[[2,1,5,0],[3,0,2,-1],[1,-1,-1,-1]]"), "{text}");
        assert!(text.contains("\"place\":[0,7,5],\"other\":[-1,8,1]"), "{text}");
    }
}
