//! Exports the algebra of `tilewright-layout` to Python as `LinearLayout`.
//!
//! The names are those of `triton._C.libtriton.linear_layout`. Dimensions may have any names.

use std::fmt::Write;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use smallvec::SmallVec;
use tilewright_layout::{Input, Layout, Map, Space};

/// A dimension of a [`LinearLayout`]: its name, and the base-2 logarithm of its size.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Dimension {
    name: String,
    bits: u32,
}

impl Dimension {
    fn new(name: &str, size: u64) -> PyResult<Self> {
        if !size.is_power_of_two() {
            return Err(refuse(format!(
                "the size of dimension {name:?} has to be a power of two, found {size}"
            )));
        }
        Ok(Self { name: name.to_owned(), bits: size.trailing_zeros() })
    }

    fn size(&self) -> u64 {
        1 << self.bits
    }
}

/// A space of named dimensions. The first dimension has the lowest bits of a vector.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Dimensions(Vec<Dimension>);

impl Dimensions {
    /// Creates a space. Fails if a name occurs twice, or if the dimensions have more than 32 bits.
    fn new(dimensions: Vec<Dimension>) -> PyResult<Self> {
        for (number, dimension) in dimensions.iter().enumerate() {
            if dimensions[..number].iter().any(|other| other.name == dimension.name) {
                return Err(refuse(format!("dimension {:?} is there twice", dimension.name)));
            }
        }
        let bits: u64 = dimensions.iter().map(|dimension| u64::from(dimension.bits)).sum();
        if bits > 32 {
            return Err(refuse(format!("the dimensions have {bits} bits together: at most 32 are possible")));
        }
        Ok(Self(dimensions))
    }

    fn names(&self) -> Vec<String> {
        self.0.iter().map(|dimension| dimension.name.clone()).collect()
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|dimension| dimension.name == name)
    }

    /// Returns the position of the lowest bit of a dimension.
    fn shift(&self, index: usize) -> u32 {
        self.0[..index].iter().map(|dimension| dimension.bits).sum()
    }

    /// Returns the vector with these coordinates, which must be in range.
    fn vector(&self, coordinates: impl IntoIterator<Item = u64>) -> u32 {
        let shifted = coordinates.into_iter().enumerate().map(|(index, value)| value << self.shift(index));
        shifted.sum::<u64>() as u32
    }

    /// Returns the dimensions of both spaces. A shared dimension gets the product of its sizes.
    fn product(&self, outer: &Self) -> PyResult<Self> {
        let mut all = self.0.clone();
        for dimension in &outer.0 {
            match all.iter_mut().find(|known| known.name == dimension.name) {
                Some(known) => known.bits += dimension.bits,
                None => all.push(dimension.clone()),
            }
        }
        Self::new(all)
    }

    /// Maps a vector of this space to the space `product`. This space is a factor of `product`. If
    /// it is the outer one, `inner` is the inner one.
    fn embed(&self, vector: u32, product: &Self, inner: Option<&Self>) -> u32 {
        let mut embedded = 0_u64;
        for (dimension, coordinate) in self.0.iter().zip(self.parts(vector)) {
            let index = product.find(&dimension.name).expect("the product has the dimensions of its factors");
            let inner = inner.and_then(|inner| Some(inner.0[inner.find(&dimension.name)?].bits));
            embedded |= u64::from(coordinate) << (product.shift(index) + inner.unwrap_or(0));
        }
        embedded as u32
    }
}

impl Space for Dimensions {
    fn bits(&self) -> u32 {
        self.0.iter().map(|dimension| dimension.bits).sum()
    }

    fn parts(&self, vector: u32) -> SmallVec<[u32; 6]> {
        let mut rest = u64::from(vector);
        let mut part = |dimension: &Dimension| {
            let value = rest & (dimension.size() - 1);
            rest >>= dimension.bits;
            value as u32
        };
        self.0.iter().map(&mut part).collect()
    }
}

fn refuse(message: String) -> PyErr {
    PyValueError::new_err(message)
}

/// A linear map over F2 between named spaces (arXiv 2505.23819). An example is the map from
/// registers, lanes and warps to the elements in them. Sizes are powers of two. The bases are the
/// images of the bits of the input.
#[pyclass(module = "tilewright.tools.linear_layout", eq, hash, frozen, from_py_object)]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct LinearLayout {
    map: Map<Dimensions, Dimensions>,
}

/// For each input dimension, its name and the coordinates of the image of each of its bits.
type Bases = Vec<(String, Vec<Vec<u64>>)>;

impl LinearLayout {
    fn input(&self) -> &Dimensions {
        self.map.input()
    }

    fn output(&self) -> &Dimensions {
        self.map.output()
    }

    /// Creates a map between two spaces that have one dimension each. Maps bit `i` to `image(i)`.
    fn one(
        (input, size): (&str, u64),
        (output, output_size): (&str, u64),
        image: impl Fn(u32) -> u32,
    ) -> PyResult<Self> {
        let from = Dimensions::new(vec![Dimension::new(input, size)?])?;
        let to = Dimensions::new(vec![Dimension::new(output, output_size)?])?;
        let columns = (0..from.bits()).map(image).collect();
        Ok(Self { map: Map::new(from, to, columns) })
    }

    /// Returns the same map with the dimensions of the output in another order.
    fn with_output(&self, wanted: &Dimensions) -> PyResult<Self> {
        let is_same = wanted.0.len() == self.output().0.len()
            && wanted.0.iter().all(|dimension| self.output().0.contains(dimension));
        if !is_same {
            let [found, expected] = [self.output(), wanted].map(sizes);
            return Err(refuse(format!("the dimensions do not match: found {found}, expected {expected}")));
        }
        let embed = |column: &u32| self.output().embed(*column, wanted, None);
        let columns = self.map.columns().iter().map(embed).collect();
        Ok(Self { map: Map::new(self.input().clone(), wanted.clone(), columns) })
    }

    /// Converts the map to a layout of the compiler. Fails if it has an input dimension that is not
    /// in `inputs`.
    fn layout(&self, inputs: &[Input]) -> PyResult<Layout> {
        let names: Vec<_> = inputs.iter().map(|input| input.name()).collect();
        if let Some(other) = self.input().0.iter().find(|known| !names.contains(&known.name.as_str())) {
            return Err(refuse(format!("this view is of the dimensions {names:?}, found {:?}", other.name)));
        }
        let shape: Vec<_> = self.output().0.iter().map(|dimension| dimension.size() as u32).collect();
        let mut layout = Layout::from_bases(&shape, &[]);
        for input in inputs {
            let Some(index) = self.input().find(input.name()) else { continue };
            let start = self.input().shift(index) as usize;
            let columns = &self.map.columns()[start..start + self.input().0[index].bits as usize];
            let element = |column: &u32| layout.output().index(&self.output().parts(*column));
            let bases: Vec<_> = columns.iter().map(element).collect();
            layout = layout.with_bases(*input, &bases);
        }
        Ok(layout)
    }
}

/// Returns the names and sizes of dimensions as text, such as `[lane (size 4)]`.
fn sizes(dimensions: &Dimensions) -> String {
    let size = |dimension: &Dimension| format!("{} (size {})", dimension.name, dimension.size());
    format!("[{}]", dimensions.0.iter().map(size).collect::<Vec<_>>().join(", "))
}

#[pymethods]
impl LinearLayout {
    /// Creates the map without dimensions, the neutral factor of a product.
    #[new]
    fn new() -> Self {
        Self { map: Map::new(Dimensions::default(), Dimensions::default(), SmallVec::new()) }
    }

    /// Creates the map from coordinate `i` of `inDim` to coordinate `i` of `outDim`.
    #[staticmethod]
    #[pyo3(signature = (size, inDim, outDim))]
    #[expect(non_snake_case, reason = "the names of the official parameters")]
    fn identity_1d(size: u64, inDim: &str, outDim: &str) -> PyResult<Self> {
        Self::one((inDim, size), (outDim, size), |bit| 1 << bit)
    }

    /// Creates the map from coordinate `i` of `inDim` to coordinate `i * stride` of `outDim`, whose
    /// size is `size * stride`.
    #[staticmethod]
    #[pyo3(signature = (size, stride, inDim, outDim))]
    #[expect(non_snake_case, reason = "the names of the official parameters")]
    fn strided_1d(size: u64, stride: u64, inDim: &str, outDim: &str) -> PyResult<Self> {
        if !stride.is_power_of_two() {
            return Err(refuse(format!("the stride has to be a power of two, found {stride}")));
        }
        let shift = stride.trailing_zeros();
        Self::one((inDim, size), (outDim, size.saturating_mul(stride)), |bit| 1 << (bit + shift))
    }

    /// Creates the map from every coordinate of `inDim` to 0.
    #[staticmethod]
    #[pyo3(signature = (size, inDim, outDim, outDimSize = 1))]
    #[expect(non_snake_case, reason = "the names of the official parameters")]
    fn zeros_1d(size: u64, inDim: &str, outDim: &str, outDimSize: u64) -> PyResult<Self> {
        Self::one((inDim, size), (outDim, outDimSize), |_| 0)
    }

    /// Creates the map with these bases. They have, for each input dimension, the coordinates of
    /// the image of each of its bits. The default sizes of the output are the smallest that contain
    /// all images.
    #[staticmethod]
    #[pyo3(signature = (bases, out_dim_names, out_dim_sizes = None, require_surjective = true))]
    #[expect(clippy::needless_pass_by_value, reason = "Python gives values")]
    fn from_bases(
        bases: Bases,
        out_dim_names: Vec<String>,
        out_dim_sizes: Option<Vec<u64>>,
        require_surjective: bool,
    ) -> PyResult<Self> {
        let rank = out_dim_names.len();
        for (name, images) in &bases {
            if let Some(image) = images.iter().find(|image| image.len() != rank) {
                return Err(refuse(format!(
                    "a basis of dimension {name:?} has {} coordinates: the output has {rank} dimensions",
                    image.len()
                )));
            }
        }
        let sizes = match out_dim_sizes {
            Some(sizes) if sizes.len() != rank => {
                let found = sizes.len();
                return Err(refuse(format!("out_dim_sizes has {found} sizes: there are {rank} dimensions")));
            }
            Some(sizes) => sizes,
            None if !require_surjective => {
                return Err(refuse("out_dim_sizes must be provided when require_surjective is false".into()));
            }
            None => {
                let images = || bases.iter().flat_map(|(_, images)| images);
                let largest = |axis: usize| images().map(|image| image[axis]).max().unwrap_or(0);
                (0..rank).map(|axis| largest(axis).saturating_add(1).next_power_of_two()).collect()
            }
        };
        let dimension = |(name, size): (&String, &u64)| Dimension::new(name, *size);
        let output =
            Dimensions::new(out_dim_names.iter().zip(&sizes).map(dimension).collect::<PyResult<_>>()?)?;
        let mut input = Vec::new();
        let mut columns = SmallVec::new();
        for (name, images) in bases {
            input.push(Dimension { name: name.clone(), bits: images.len() as u32 });
            for image in images {
                let outside = image.iter().zip(&output.0).find(|(value, known)| **value >= known.size());
                if let Some((value, known)) = outside {
                    let (size, to) = (known.size(), &known.name);
                    return Err(refuse(format!(
                        "a basis of dimension {name:?} has {value} for {to:?}, whose size is {size}"
                    )));
                }
                columns.push(output.vector(image));
            }
        }
        let layout = Self { map: Map::new(Dimensions::new(input)?, output, columns) };
        if require_surjective && !layout.is_surjective() {
            let text = layout.__repr__();
            return Err(refuse(format!("the layout has to reach every coordinate of the output:{text}")));
        }
        Ok(layout)
    }

    /// The name of each input dimension, and the coordinates of the image of each of its bits.
    #[getter]
    fn bases(&self) -> Bases {
        let mut columns = self.map.columns().iter();
        let image = |column: &u32| self.output().parts(*column).into_iter().map(u64::from).collect();
        let of = |known: &Dimension| {
            (known.name.clone(), columns.by_ref().take(known.bits as usize).map(image).collect())
        };
        self.input().0.iter().map(of).collect()
    }

    /// The name and the size of each output dimension.
    #[getter]
    fn out_dims(&self) -> Vec<(String, u64)> {
        self.output().0.iter().map(|known| (known.name.clone(), known.size())).collect()
    }

    /// The number of input dimensions.
    #[getter]
    fn num_in_dims(&self) -> usize {
        self.input().0.len()
    }

    /// The number of output dimensions.
    #[getter]
    fn num_out_dims(&self) -> usize {
        self.output().0.len()
    }

    fn get_in_dim_names(&self) -> Vec<String> {
        self.input().names()
    }

    fn get_out_dim_names(&self) -> Vec<String> {
        self.output().names()
    }

    /// Returns the coordinates of the output for a coordinate of each input dimension.
    fn apply<'py>(&self, py: Python<'py>, inputs: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
        if inputs.len() != self.num_in_dims() {
            let known = self.get_in_dim_names();
            return Err(refuse(format!(
                "a coordinate for each of {known:?} is needed, found {}",
                inputs.keys()
            )));
        }
        let mut vector = 0;
        for (index, known) in self.input().0.iter().enumerate() {
            let Some(value) = inputs.get_item(&known.name)? else {
                return Err(refuse(format!("no coordinate for dimension {:?}", known.name)));
            };
            let value: u64 = value.extract()?;
            if value >= known.size() {
                let size = known.size();
                return Err(refuse(format!(
                    "coordinate {value} of dimension {:?} is out of range: its size is {size}",
                    known.name
                )));
            }
            vector |= value << self.input().shift(index);
        }
        let result = PyDict::new(py);
        for (known, value) in self.output().0.iter().zip(self.output().parts(self.map.apply(vector as u32))) {
            result.set_item(&known.name, value)?;
        }
        Ok(result)
    }

    /// Returns the map that applies this map, then `arg`. The input dimensions of `arg` are the
    /// output dimensions of this map, in any order.
    fn compose(&self, arg: &Self) -> PyResult<Self> {
        Ok(Self { map: self.with_output(arg.input())?.map.then(&arg.map) })
    }

    /// Returns the inverse map.
    fn invert(&self) -> PyResult<Self> {
        let inverse = self.map.inverse();
        inverse
            .map(|map| Self { map })
            .ok_or_else(|| refuse(format!("the layout has no inverse:{}", self.__repr__())))
    }

    /// Returns a map from each coordinate of the output to a coordinate of the input with that
    /// image. If there are several such coordinates, the map prefers the lowest bits of the input.
    fn pseudoinvert(&self) -> PyResult<Self> {
        let inverse = self.map.right_inverse();
        inverse
            .map(|map| Self { map })
            .ok_or_else(|| refuse(format!("the layout does not reach every coordinate:{}", self.__repr__())))
    }

    /// Returns the map `c` for which `c`, then `arg`, is this map.
    fn invert_and_compose(&self, arg: &Self) -> PyResult<Self> {
        let map = self.with_output(arg.output())?.map.relative_to(&arg.map);
        map.map(|map| Self { map }).ok_or_else(|| {
            refuse("the other layout does not reach every coordinate that this one reaches".into())
        })
    }

    fn is_surjective(&self) -> bool {
        self.map.is_surjective()
    }

    fn is_injective(&self) -> bool {
        self.map.is_injective()
    }

    fn is_invertible(&self) -> bool {
        self.map.is_surjective() && self.map.is_injective()
    }

    /// Returns the matrix over F2: a row for each bit of the output, a column for each bit of the
    /// input.
    fn get_matrix_view(&self) -> Vec<Vec<u32>> {
        let row = |bit: u32| self.map.columns().iter().map(|column| column >> bit & 1).collect();
        (0..self.output().bits()).map(row).collect()
    }

    /// Returns a table of the tile, for a map from `register`, `lane`, `warp`, `block`. The table
    /// has the hardware indices of each element. With `use_hardware_view`, it has the element at
    /// each hardware index.
    fn get_distributed_view(&self, use_hardware_view: bool) -> PyResult<String> {
        let layout = self.layout(&[Input::Register, Input::Lane, Input::Warp, Input::Block])?;
        Ok(if use_hardware_view { layout.places() } else { layout.table() })
    }

    /// Returns a table of the tile, for a map from `offset` and `block`. The table has the offset
    /// of each element. With `use_hardware_view`, it has the element at each offset.
    fn get_shared_view(&self, use_hardware_view: bool) -> PyResult<String> {
        let layout = self.layout(&[Input::Offset, Input::Block])?;
        Ok(if use_hardware_view { layout.places() } else { layout.table() })
    }

    /// Returns the product, in which `arg` repeats this map. In dimensions of both maps, this map
    /// has the lower bits.
    fn __mul__(&self, arg: &Self) -> PyResult<Self> {
        let input = self.input().product(arg.input())?;
        let output = self.output().product(arg.output())?;
        let mut columns: SmallVec<_> = SmallVec::from_elem(0, input.bits() as usize);
        for (factor, inner) in [(self, None), (arg, Some(self))] {
            for (bit, column) in factor.map.columns().iter().enumerate() {
                let place = factor.input().embed(1 << bit, &input, inner.map(Self::input));
                columns[place.trailing_zeros() as usize] =
                    factor.output().embed(*column, &output, inner.map(Self::output));
            }
        }
        Ok(Self { map: Map::new(input, output, columns) })
    }

    fn __repr__(&self) -> String {
        let mut text = String::from("\n");
        for (name, images) in self.bases() {
            for (bit, image) in images.iter().enumerate() {
                let lead = if bit == 0 { " - " } else { "   " };
                let image: Vec<_> = image.iter().map(u64::to_string).collect();
                let _ = writeln!(text, "{lead}{name}={} -> ({})", 1_u64 << bit, image.join(", "));
            }
            if images.is_empty() {
                let _ = writeln!(text, " - {name} is a size 1 dimension");
            }
        }
        let _ = write!(text, "where out dims are: {}", sizes(self.output()));
        text
    }
}
