//! Represents the arguments of a call as Python passes them: by position, then by keyword.

use std::cell::Cell;
use std::sync::OnceLock;

use pyo3::Borrowed;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use smallvec::SmallVec;
use tilewright_ir::Dtype;
use tilewright_runtime::{ArgumentSource, Device, Value};

/// The arguments of a call.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a, 'py> {
    /// The positional arguments, then the keyword arguments.
    values: &'a [Borrowed<'a, 'py, PyAny>],
    positional: usize,
    keywords: Option<Borrowed<'a, 'py, PyTuple>>,
    /// The dtypes and the device that an autotuner expects of the arguments. If they differ, the
    /// call does not launch.
    expected: Option<&'a Expected<'a>>,
}

impl<'a, 'py> Call<'a, 'py> {
    /// Calls a function with the arguments of a tuple and a dict.
    pub(crate) fn with<R>(
        positional: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
        function: impl FnOnce(&Call<'_, 'py>) -> R,
    ) -> R {
        let named = named.filter(|named| !named.is_empty());
        let named = named.map(|named| (named.keys().to_tuple(), named.values().to_tuple()));
        let mut values: SmallVec<[_; 16]> = positional.iter_borrowed().collect();
        values.extend(named.iter().flat_map(|(_, values)| values.iter_borrowed()));
        let keywords = named.as_ref().map(|(keywords, _)| keywords.as_borrowed());
        function(&Call { values: &values, positional: positional.len(), keywords, expected: None })
    }

    /// Creates a call with `positional` positional arguments. The other values belong to
    /// `keywords`.
    pub(crate) fn new(
        values: &'a [Borrowed<'a, 'py, PyAny>],
        positional: usize,
        keywords: Option<Borrowed<'a, 'py, PyTuple>>,
        expected: Option<&'a Expected<'a>>,
    ) -> Self {
        Self { values, positional, keywords, expected }
    }

    /// Returns the dtypes and the device that an autotuner expects of the arguments. If they
    /// differ, the call does not launch.
    #[inline]
    pub(crate) fn expected(&self) -> Option<&'a Expected<'a>> {
        self.expected
    }

    /// Returns the index of the argument of a parameter, or `None` for its default.
    #[inline]
    pub(crate) fn number(&self, source: ArgumentSource) -> Option<usize> {
        match source {
            ArgumentSource::Positional(number) => Some(number),
            ArgumentSource::Keyword(number) => Some(self.positional + number),
            ArgumentSource::Default => None,
        }
    }

    /// Returns all arguments, with the positional arguments first.
    pub(crate) fn values(&self) -> &'a [Borrowed<'a, 'py, PyAny>] {
        self.values
    }

    /// Returns the number of positional arguments.
    pub(crate) fn positional(&self) -> usize {
        self.positional
    }

    /// Returns the names of the keyword arguments. A call expression passes the same tuple each
    /// time.
    pub(crate) fn keywords(&self) -> Option<Borrowed<'a, 'py, PyTuple>> {
        self.keywords
    }

    /// Returns the names of the keyword arguments as strings.
    pub(crate) fn names(&self) -> PyResult<Vec<String>> {
        match self.keywords {
            Some(keywords) => keywords.extract(),
            None => Ok(vec![]),
        }
    }

    /// Returns the keyword argument with this index.
    #[inline]
    pub(crate) fn named(&self, number: usize) -> Borrowed<'a, 'py, PyAny> {
        self.values[self.positional + number]
    }

    /// Returns the argument of a parameter, or `None` for its default.
    #[inline]
    pub(crate) fn argument(&self, source: ArgumentSource) -> Option<Borrowed<'a, 'py, PyAny>> {
        match source {
            ArgumentSource::Positional(number) => Some(self.values[number]),
            ArgumentSource::Keyword(number) => Some(self.named(number)),
            ArgumentSource::Default => None,
        }
    }

    /// Calls a function with a copy of this call, in which one tuple replaces the positional
    /// arguments from `first` on.
    pub(crate) fn with_rest<R>(
        &self,
        py: Python<'py>,
        first: usize,
        function: impl FnOnce(&Call<'_, 'py>) -> PyResult<R>,
    ) -> PyResult<R> {
        let (positional, named) = self.values.split_at(self.positional);
        let rest = PyTuple::new(py, &positional[first..])?;
        let mut values: SmallVec<[_; 16]> = positional[..first].iter().copied().collect();
        values.push(rest.as_any().as_borrowed());
        values.extend(named.iter().copied());
        function(&Call { values: &values, positional: first + 1, keywords: self.keywords, expected: None })
    }

    /// Returns the arguments as a tuple and a dict, for `(*args, **kwargs)`.
    pub(crate) fn to_python(self, py: Python<'py>) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
        let (positional, named) = self.values.split_at(self.positional);
        let keywords = PyDict::new(py);
        for (name, value) in self.keywords.iter().flat_map(|names| names.iter_borrowed()).zip(named) {
            keywords.set_item(name, value)?;
        }
        Ok((PyTuple::new(py, positional)?, keywords))
    }
}

/// The dtypes and the device that an autotuner expects of the arguments of a call. The launch,
/// which reads the arguments, compares them.
pub(crate) struct Expected<'a> {
    /// The index in `dtypes` of each argument's dtype; `None` if the argument is no parameter.
    places: &'a [Option<usize>],
    /// The dtypes of the parameters that are tensors; `None` for other parameters.
    dtypes: &'a [Option<Dtype>],
    device: Option<Device>,
    is_met: Cell<bool>,
}

impl<'a> Expected<'a> {
    pub(crate) fn new(
        places: &'a [Option<usize>],
        dtypes: &'a [Option<Dtype>],
        device: Option<Device>,
    ) -> Self {
        Self { places, dtypes, device, is_met: Cell::new(false) }
    }

    /// Returns whether values have the expected dtypes and device. Each value has the index of its
    /// argument.
    #[inline]
    pub(crate) fn check<'v>(&self, mut values: impl Iterator<Item = (usize, &'v Value<'static>)>) -> bool {
        let is_met = values.all(|(number, value)| {
            let Some(&Some(at)) = self.places.get(number) else { return true };
            match value {
                Value::Pointer(pointer) => {
                    self.dtypes[at] == Some(pointer.pointee) && self.device == Some(pointer.device)
                }
                _ => self.dtypes[at].is_none(),
            }
        });
        self.is_met.set(is_met);
        is_met
    }

    /// Returns the result of the latest comparison, or false before the first comparison.
    pub(crate) fn is_met(&self) -> bool {
        self.is_met.get()
    }
}

/// A value for each of the first `MAX` call shapes that occurred.
pub(crate) struct ByCallShape<T, const MAX: usize>([OnceLock<CachedShape<T>>; MAX]);

/// The value for a number of positional arguments and the keywords of a call.
struct CachedShape<T> {
    positional: usize,
    keywords: Option<Py<PyTuple>>,
    kept: T,
}

impl<T, const MAX: usize> Default for ByCallShape<T, MAX> {
    fn default() -> Self {
        Self([const { OnceLock::new() }; MAX])
    }
}

impl<T, const MAX: usize> ByCallShape<T, MAX> {
    /// Returns the value for a call, if one is kept.
    #[inline]
    pub(crate) fn get(&self, py: Python<'_>, call: &Call<'_, '_>) -> Option<&T> {
        let has_keywords = |known: &CachedShape<T>| match (&known.keywords, call.keywords) {
            (None, None) => true,
            (Some(known), Some(keywords)) => has_same_items(known.bind_borrowed(py), keywords),
            _ => false,
        };
        let mut known = self.0.iter().map_while(OnceLock::get);
        let found = known.find(|known| known.positional == call.positional && has_keywords(known))?;
        Some(&found.kept)
    }

    /// Keeps the value for a call, and returns the value. Returns `None` if `MAX` values are
    /// already kept.
    pub(crate) fn keep(&self, call: &Call<'_, '_>, kept: T) -> Option<&T> {
        let keywords = call.keywords.map(|keywords| keywords.to_owned().unbind());
        let mut known = CachedShape { positional: call.positional, keywords, kept };
        for place in &self.0 {
            match place.set(known) {
                Ok(()) => return place.get().map(|known| &known.kept),
                Err(refused) => known = refused,
            }
        }
        None
    }

    /// Returns all values that are kept.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map_while(OnceLock::get).map(|known| &known.kept)
    }
}

/// Returns whether two tuples contain the same objects. Usually both are the same tuple.
#[inline]
fn has_same_items(one: Borrowed<'_, '_, PyTuple>, other: Borrowed<'_, '_, PyTuple>) -> bool {
    let has_same_items =
        || one.len() == other.len() && one.iter_borrowed().zip(other.iter_borrowed()).all(|(a, b)| a.is(b));
    one.is(other) || has_same_items()
}
