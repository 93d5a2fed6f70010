//! Defines `extern_elementwise`, which calls a function of a device library by its symbol.
//!
//! A symbol of libdevice without pointer parameters, such as `__nv_sqrtf`, calls the equivalent
//! function of the language on every device. No library is linked.

use tilewright_base::Code;
use tilewright_ir::{Builder, Dtype, Element, Rounding, Shape};

use super::arguments::{Arguments, constant_of, count, flatten};
use super::convert::{broadcast_to, cast, cast_element, check_size, common_shape, shape_mismatch, tensor};
use super::library::LIBRARY;
use super::promote::{Rule, Side, common_dtype};
use super::signature::parse_signature;
use super::{Caller, LanguageItem, Op, Semantic, SemanticError, ValueOf, language};
use crate::suggest::suggest;
use crate::value::{Constant, Operand};

/// Functions of libdevice for fp64, without `__nv_`, with the names of the language. With an `f`,
/// they are for fp32.
const OF_FLOATS: &str = "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh cospi cyl_bessel_i0 \
    cyl_bessel_i1 erf erfc erfcinv erfcx erfinv exp exp10 exp2 expm1 fdim floor fma fmod hypot ilogb j0 j1 jn ldexp \
    lgamma llrint llround log log10 log1p log2 logb nearbyint nextafter norm3d norm4d normcdf normcdfinv pow rcbrt \
    remainder rhypot rint rnorm3d rnorm4d round rsqrt scalbn sin sinh sinpi sqrt tan tanh tgamma trunc y0 y1 yn";

/// Functions for fp32 with the names of the language, including the `f`.
const FAST: &str = "fast_cosf fast_exp10f fast_expf fast_log10f fast_log2f fast_logf fast_powf fast_sinf fast_tanf saturatef";

/// Operations with a rounding direction: `__nv_fadd_rz`, `__nv_dadd_rz`.
const ROUNDED: &str = "add div mul rcp sqrt sub";

/// The symbol without `__nv_`, the name in the language, and the type of the arguments.
const OTHERS: &[(&str, &str, Dtype)] = &[
    ("abs", "abs", Dtype::I32),
    ("llabs", "abs", Dtype::I64),
    ("fabs", "abs", Dtype::F64),
    ("fabsf", "abs", Dtype::F32),
    ("brev", "brev", Dtype::I32),
    ("brevll", "brev", Dtype::I64),
    ("byte_perm", "byte_perm", Dtype::I32),
    ("clz", "clz", Dtype::I32),
    ("clzll", "clz", Dtype::I64),
    ("fast_fdividef", "fast_dividef", Dtype::F32),
    ("ffs", "ffs", Dtype::I32),
    ("ffsll", "ffs", Dtype::I64),
    ("finitef", "finitef", Dtype::F32),
    ("frsqrt_rn", "rsqrt_rn", Dtype::F32),
    ("hadd", "hadd", Dtype::I32),
    ("hiloint2double", "hiloint2double", Dtype::I32),
    ("isfinited", "isfinited", Dtype::F64),
    ("isinfd", "isinf", Dtype::F64),
    ("isinff", "isinf", Dtype::F32),
    ("isnand", "isnan", Dtype::F64),
    ("isnanf", "isnan", Dtype::F32),
    ("mul24", "mul24", Dtype::I32),
    ("mul64hi", "mulhi", Dtype::I64),
    ("mulhi", "mulhi", Dtype::I32),
    ("popc", "popc", Dtype::I32),
    ("popcll", "popc", Dtype::I64),
    ("powi", "pow", Dtype::F64),
    ("powif", "pow", Dtype::F32),
    ("rcp64h", "rcp64h", Dtype::F64),
    ("rhadd", "rhadd", Dtype::I32),
    ("sad", "sad", Dtype::I32),
    ("signbitd", "signbit", Dtype::F64),
    ("signbitf", "signbit", Dtype::F32),
    ("uhadd", "hadd", Dtype::U32),
    ("umul24", "mul24", Dtype::U32),
    ("umul64hi", "mulhi", Dtype::U64),
    ("umulhi", "mulhi", Dtype::U32),
    ("urhadd", "rhadd", Dtype::U32),
    ("usad", "sad", Dtype::U32),
];

/// The symbol without `__nv_`, the function of `triton.language`, and the type of the arguments.
const EXTREMA: &[(&str, &str, Dtype)] = &[
    ("fmax", "maximum", Dtype::F64),
    ("fmaxf", "maximum", Dtype::F32),
    ("fmin", "minimum", Dtype::F64),
    ("fminf", "minimum", Dtype::F32),
    ("llmax", "maximum", Dtype::I64),
    ("llmin", "minimum", Dtype::I64),
    ("max", "maximum", Dtype::I32),
    ("min", "minimum", Dtype::I32),
    ("ullmax", "maximum", Dtype::U64),
    ("ullmin", "minimum", Dtype::U64),
    ("umax", "maximum", Dtype::U32),
    ("umin", "minimum", Dtype::U32),
];

/// The argument type of a conversion, by the prefix of its name.
const CONVERTED: &[(&str, Dtype)] = &[
    ("double", Dtype::F64),
    ("float", Dtype::F32),
    ("int", Dtype::I32),
    ("ll", Dtype::I64),
    ("longlong", Dtype::I64),
    ("uint", Dtype::U32),
    ("ull", Dtype::U64),
];

/// A function of libdevice.
#[derive(Clone, PartialEq, Eq, Debug)]
struct External {
    /// The path of the function in the language.
    path: String,
    /// The type of the arguments. The integer argument of `ldexp`, `scalbn`, `pow`, `jn` and `yn`
    /// may be int32.
    dtype: Dtype,
}

fn find(symbol: &str) -> Option<External> {
    let name = symbol.strip_prefix("__nv_")?;
    let has = |list: &str, name: &str| list.split_whitespace().any(|known| known == name);
    let known = |name: &str, dtype| Some(External { path: format!("extra.libdevice.{name}"), dtype });
    if let Some((_, path, dtype)) = EXTREMA.iter().find(|(symbol, ..)| *symbol == name) {
        return Some(External { path: (*path).to_owned(), dtype: *dtype });
    }
    if let Some((_, name, dtype)) = OTHERS.iter().find(|(symbol, ..)| *symbol == name) {
        return known(name, *dtype);
    }
    if has(OF_FLOATS, name) {
        return known(name, Dtype::F64);
    }
    if has(FAST, name) {
        return known(name, Dtype::F32);
    }
    if let Some(single) = name.strip_suffix('f').filter(|single| has(OF_FLOATS, single)) {
        return known(single, Dtype::F32);
    }
    if let Some((operation, direction)) = name.rsplit_once('_').filter(|(_, mode)| has("rn rz rd ru", mode)) {
        match operation {
            "fma" => return known(name, Dtype::F64),
            "fmaf" => return known(&format!("fma_{direction}"), Dtype::F32),
            _ => {}
        }
        for (prefix, dtype) in [("f", Dtype::F32), ("d", Dtype::F64)] {
            if let Some(operation) = operation.strip_prefix(prefix).filter(|it| has(ROUNDED, it)) {
                return known(&format!("{operation}_{direction}"), dtype);
            }
        }
    }
    let from = name.split_once('2').or_else(|| name.split_once("_as_"))?.0;
    let dtype = CONVERTED.iter().find(|(prefix, _)| *prefix == from)?.1;
    known(name, dtype).filter(|found| language(&found.path).is_some())
}

/// Returns a similar symbol, for "did you mean".
fn nearest(symbol: &str) -> Option<String> {
    let floats = OF_FLOATS.split_whitespace().flat_map(|name| [name.to_owned(), format!("{name}f")]);
    let others = OTHERS.iter().chain(EXTREMA).map(|(name, ..)| (*name).to_owned());
    let known: Vec<String> = floats.chain(others).collect();
    let name = symbol.strip_prefix("__nv_").unwrap_or(symbol);
    if known.iter().any(|known| known == name) {
        return Some(format!("__nv_{name}"));
    }
    suggest(name, known.iter().map(String::as_str)).map(|near| format!("__nv_{near}"))
}

/// A row of the dict: the types of the arguments, the symbol, and the result type.
struct Row {
    types: Vec<Element>,
    symbol: String,
    result: Element,
}

/// `extern_elementwise(lib_name, lib_path, args, arg_type_symbol_dict, is_pure)`.
pub(super) fn extern_elementwise<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    a.flag(c, 4)?;
    let rows = table(c, a)?;
    let values = arguments(c, a)?;
    let Some(first) = rows.first() else {
        let message = "`arg_type_symbol_dict` of `extern_elementwise` is empty";
        return Err(SemanticError::new(Code::InvalidValue, message).argument(3, "expected a type and symbol"));
    };
    if first.types.len() != values.len() {
        let message = format!(
            "`extern_elementwise` is given {}, and its table is for {}",
            count(values.len(), "argument", "arguments"),
            first.types.len()
        );
        return Err(SemanticError::new(Code::WrongArguments, message)
            .argument(2, format!("this has {}", count(values.len(), "item", "items")))
            .argument(3, format!("these have {}", count(first.types.len(), "type", "types"))));
    }
    let (values, types) = matching(c, values, &rows);
    let Some(row) = rows.iter().find(|row| row.types == types) else {
        let listed = |types: &[Element]| types.iter().map(Element::to_string).collect::<Vec<_>>().join(", ");
        let expected: Vec<String> = rows.iter().map(|row| format!("({})", listed(&row.types))).collect();
        let message = "input arg type does not match: `extern_elementwise` has no symbol for these types";
        return Err(SemanticError::new(Code::TypeMismatch, message)
            .argument(2, format!("the types are ({})", listed(&types)))
            .note(format!("Expect one of {}, got ({})", expected.join(", "), listed(&types)))
            .hint("convert the arguments, such as `x.to(tl.float32)`, or add the types to the table"));
    };
    let external = find(&row.symbol).ok_or_else(|| unknown(c, a, &row.symbol))?;
    check(row, &external)?;
    let result = apply(c, &external, values)?;
    converted(c, result, row)
}

/// Reads the rows of the dict. The caller has converted the dict to a tuple of pairs.
fn table<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Vec<Row>> {
    let wrong = || {
        let message = "`arg_type_symbol_dict` of `extern_elementwise` must be a dict of types and symbols";
        SemanticError::new(Code::InvalidValue, message)
            .argument(3, "this is not such a dict")
            .hint("write `{(tl.core.dtype(\"fp32\"),): (\"__nv_sqrtf\", tl.core.dtype(\"fp32\"))}`")
    };
    let Constant::Tuple(pairs) = constant_of(c, a.at(3)?).ok_or_else(wrong)? else { return Err(wrong()) };
    let element = |constant: &Constant| match constant {
        Constant::Type(ty) if ty.is_scalar() => Some(ty.element),
        Constant::LanguageType(ty) => ty.as_ir().filter(tilewright_ir::Type::is_scalar).map(|ty| ty.element),
        _ => None,
    };
    let row = |pair: &Constant| {
        let Constant::Tuple(pair) = pair else { return None };
        let [Constant::Tuple(types), Constant::Tuple(found)] = &pair[..] else { return None };
        let [Constant::Str(symbol), result] = &found[..] else { return None };
        let types = types.iter().map(element).collect::<Option<_>>()?;
        Some(Row { types, symbol: symbol.to_string(), result: element(result)? })
    };
    pairs.iter().map(row).collect::<Option<_>>().ok_or_else(wrong)
}

/// Returns the arguments, broadcast to their common shape. Each argument keeps its type.
fn arguments<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Vec<ValueOf<C>>> {
    let mut values = Vec::new();
    let mut shape = Shape::scalar();
    for item in flatten(a.at(2)?) {
        let value = tensor(c, &item, 2)?;
        let own = c.builder().type_of(&value).shape;
        shape = common_shape(&shape, &own)
            .map_err(|axis| shape_mismatch("`extern_elementwise`", (2, &shape), (2, &own), axis))?;
        values.push(value);
    }
    check_size(&shape).map_err(|error| error.argument(2, "these"))?;
    values.into_iter().map(|value| broadcast_to(c, value, &shape)).collect()
}

/// Returns the values and their types, unchanged if a row has them, otherwise in their common type.
fn matching<C: Caller + ?Sized>(
    c: &mut C,
    values: Vec<ValueOf<C>>,
    rows: &[Row],
) -> (Vec<ValueOf<C>>, Vec<Element>) {
    let own: Vec<Element> = values.iter().map(|value| c.builder().type_of(value).element).collect();
    if rows.iter().any(|row| row.types == own) {
        return (values, own);
    }
    let mut dtypes = own.iter().map(|element| element.value());
    let common = dtypes.next().flatten().and_then(|first| {
        dtypes.try_fold(first, |known, next| {
            let side = |dtype| Side { dtype, is_weak: false };
            common_dtype(side(known), side(next?), Rule::PLAIN).ok()
        })
    });
    let Some(common) = common else { return (values, own) };
    let all: Semantic<Vec<_>> = values.iter().map(|value| cast(c, value.clone(), common)).collect();
    match all {
        Ok(all) => {
            let types = vec![Element::Value(common); all.len()];
            (all, types)
        }
        Err(_) => (values, own),
    }
}

fn unknown<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>, symbol: &str) -> SemanticError {
    let library = match a.at(0).ok().and_then(|name| constant_of(c, name)) {
        Some(Constant::Str(name)) if !name.is_empty() => format!(" of library {:?}", name.as_ref()),
        _ => String::new(),
    };
    let error = SemanticError::new(
        Code::UnknownExternal,
        format!("the external function `{symbol}`{library} is not built in, and libraries are not linked"),
    )
    .argument(3, format!("this names `{symbol}`"))
    .note("the functions of libdevice that give a value for values, `__nv_...`, are built in");
    match nearest(symbol) {
        Some(near) => error.hint(format!("did you mean `{near}`?")),
        None => error.hint(
            "write it in the language, as a @triton.jit function, or as PTX with `tl.inline_asm_elementwise`",
        ),
    }
}

fn check(row: &Row, external: &External) -> Semantic<()> {
    let Row { types, symbol, .. } = row;
    let wrong =
        |message: String| Err(SemanticError::new(Code::TypeMismatch, message).argument(3, "declared here"));
    let arity = match language(&external.path) {
        Some(LanguageItem::Builtin(spec)) => spec.parameters.iter().filter(|it| it.default.is_none()).count(),
        Some(LanguageItem::Library(function)) => {
            let scanned = LIBRARY.iter().find(|scanned| scanned.function == function);
            scanned.and_then(|scanned| parse_signature(scanned.signature)).map_or(1, |(_, them)| them.len())
        }
        _ => 1,
    };
    if types.len() != arity {
        let takes = count(arity, "argument", "arguments");
        return wrong(format!("`{symbol}` takes {takes}, and is declared with {}", types.len()));
    }
    let may_count = |index: usize| match external.path.rsplit('.').next() {
        Some("ldexp" | "scalbn" | "pow") => index == 1,
        Some("jn" | "yn") => index == 0,
        _ => false,
    };
    for (index, element) in types.iter().enumerate() {
        let dtype = external.dtype;
        let fits = element.value().is_some_and(|found| {
            if dtype.is_float() {
                found == dtype || (may_count(index) && found.is_int() && found.bits() == 32)
            } else {
                found.is_int() && found.bits() == dtype.bits()
            }
        });
        if !fits {
            return wrong(format!("argument {index} of `{symbol}` is {dtype}, and declared as {element}"));
        }
    }
    Ok(())
}

/// Calls the function. Integers are converted to the integer type that the symbol implies.
fn apply<C: Caller + ?Sized>(
    c: &mut C,
    external: &External,
    values: Vec<ValueOf<C>>,
) -> Semantic<ValueOf<C>> {
    let mut arguments = Vec::with_capacity(values.len());
    for value in values {
        let is_int = c.builder().type_of(&value).dtype().is_some_and(Dtype::is_int);
        let signedness = Some(external.dtype).filter(|dtype| is_int && dtype.is_int());
        let value = signedness.map_or(Ok(value.clone()), |dtype| cast(c, value, dtype))?;
        arguments.push(Operand::Tensor(value));
    }
    let result = c.call(&Operand::Language(external.path.as_str().into()), arguments, Vec::new())?;
    tensor(c, &result, 2)
}

/// Converts the result to the type in the table, which may be the `int` of C for a truth value.
fn converted<C: Caller + ?Sized>(c: &mut C, result: ValueOf<C>, row: &Row) -> Semantic<Op<C>> {
    let found = c.builder().type_of(&result).element;
    let is_same = match (found.value(), row.result.value()) {
        (Some(found), Some(declared)) if found.is_int() && declared.is_int() => {
            found.bits() == declared.bits() || found.is_bool()
        }
        _ => found == row.result,
    };
    if !is_same {
        let message = format!("`{}` gives {found}, and is declared to give {}", row.symbol, row.result);
        return Err(SemanticError::new(Code::TypeMismatch, message).argument(3, "declared here"));
    }
    Ok(Operand::Tensor(cast_element(c, result, row.result, Rounding::default())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symbols of libdevice's guide without pointers.
    const SYMBOLS: &str = "abs acos acosf asinh atan2f brev brevll byte_perm ceilf clz clzll copysign cosf cospif dadd_rd \
        ddiv_rn dmul_ru double2float_rz double2hiint double2int_rn double2ll_rz double2loint double2uint_ru \
        double2ull_rd double_as_longlong drcp_rn dsqrt_rz erf erff exp10f expf fabs fabsf fadd_rn fast_cosf \
        fast_fdividef fast_powf fdim fdiv_rd ffs ffsll finitef float2int_rn float2ll_ru float2uint_rz float_as_int \
        floor fma fma_rd fmaf fmaf_rn fmax fmaxf fminf fmodf fmul_rn frcp_rz frsqrt_rn fsqrt_rn fsub_ru hadd \
        hiloint2double hypotf ilogb int2double_rn int2float_rz int_as_float isfinited isinfd isinff isnand isnanf \
        j0f jn jnf ldexpf lgamma ll2double_ru ll2float_rn llabs llmax llmin llrintf llround log1p logb \
        longlong_as_double max min mul24 mul64hi mulhi nearbyint nextafter norm3d normcdfinvf popc popcll pow powf \
        powi powif rcbrt rcp64h remainderf rhadd rhypot rint rnorm4df round rsqrtf sad saturatef scalbn signbitd \
        signbitf sinh sinpif sqrt sqrtf tan tanhf tgamma trunc uhadd uint2double_rn uint2float_ru uint_as_float \
        ull2double_rn ull2float_rd ullmax ullmin umax umin umul24 umul64hi umulhi urhadd usad y1 ynf";

    #[test]
    fn symbols_name_functions_of_the_language() {
        let floats = OF_FLOATS.split_whitespace().flat_map(|name| [name.to_owned(), format!("{name}f")]);
        let tables = OTHERS.iter().chain(EXTREMA).map(|(name, ..)| (*name).to_owned());
        for name in floats.chain(tables).chain(SYMBOLS.split_whitespace().map(str::to_owned)) {
            let found = find(&format!("__nv_{name}")).unwrap_or_else(|| panic!("{name} is not known"));
            assert!(
                matches!(language(&found.path), Some(LanguageItem::Builtin(_) | LanguageItem::Library(_))),
                "{name}: {}",
                found.path
            );
        }
        for wrong in
            ["sqrtf", "__nv_sqrt_rn", "__nv_add_rn", "__nv_sincosf", "__nv_half2float", "nvshmem_my_pe"]
        {
            assert_eq!(find(wrong), None, "{wrong}");
        }
        assert_eq!(nearest("__nv_sqrf").as_deref(), Some("__nv_sqrt"));
    }
}
