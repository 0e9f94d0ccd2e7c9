//! Mixtures of experts, in `experts.cu`.

use candle_core::{DType, Result, Tensor, bail};

use super::{
    super::mixture::{Chosen, List, SentAddresses, Table},
    address, device,
    launch::{Argument, Kernels, Launch},
    rows_of, sums_of,
};
use crate::engine::native::routing::{Groups, Routing, Scores};

const EXPERTS: Kernels = Kernels { name: "experts", ptx: include_str!(concat!(env!("OUT_DIR"), "/experts.ptx")) };
/// Warps of a block that chooses or multiplies, `WARPS` there.
const WARPS: usize = 4;
const THREADS: u32 = 128;
const _: () = assert!(THREADS as usize == 32 * WARPS, "a warp has 32 threads");
/// Threads of a block that lists or adds.
const LISTING: u32 = 256;

/// The kernel for tiles of so many rows, and how many outputs a warp of it computes.
fn multiplication(dtype: DType, tile_rows: usize) -> Result<(&'static str, usize)> {
    match (dtype, tile_rows) {
        (DType::BF16, 8) => Ok(("multiply_experts_16_1", 16)),
        (DType::BF16, 16) => Ok(("multiply_experts_16_2", 16)),
        (DType::BF16, 32) => Ok(("multiply_experts_32_4", 32)),
        (DType::BF16, 64) => Ok(("multiply_experts_32_8", 32)),
        (DType::F32, 8) => Ok(("multiply_experts_f32", 1)),
        (dtype, tile_rows) => bail!("tiles of {tile_rows} rows of {dtype:?}"),
    }
}

/// The address of a list.
fn list(chosen: &Chosen, list: List) -> Result<Argument> {
    Ok(Argument::Address(address(&chosen.list(list)?)?))
}

/// The address of `len` numbers, or none.
fn optional(tensor: Option<&Tensor>, dtype: DType, len: usize) -> Result<Argument> {
    match tensor {
        None => Ok(Argument::Address(0)),
        Some(tensor) if tensor.dtype() == dtype && tensor.is_contiguous() && tensor.elem_count() == len => {
            Ok(Argument::Address(address(tensor)?))
        }
        Some(tensor) => bail!("{:?} of {:?} and not {len} of {dtype:?}", tensor.shape(), tensor.dtype()),
    }
}

/// Chooses the experts of all rows by their scores, a bias, factors of weights, and the experts that rows are given.
pub(in super::super) fn choose_experts(
    scores: &Tensor,
    Routing { experts, per_token, router }: Routing,
    (bias, factors, given): (Option<&Tensor>, Option<&Tensor>, Option<&Tensor>),
    chosen: &Chosen,
) -> Result<()> {
    let (at, rows, columns) = sums_of(scores)?;
    if (rows, columns, chosen.rows, chosen.per_token) != (chosen.rows, experts, rows, per_token) {
        bail!("scores of {rows} rows of {columns} for {experts} experts");
    }
    let Groups { count, chosen: groups, best } = router.groups.unwrap_or(Groups { count: 0, chosen: 0, best: 0 });
    let arguments = [
        Argument::Address(at),
        optional(bias, DType::F32, experts)?,
        optional(factors, DType::F32, experts)?,
        optional(given, DType::U32, chosen.places())?,
        list(chosen, List::Experts)?,
        list(chosen, List::Weights)?,
        Argument::count(rows)?,
        Argument::count(experts)?,
        Argument::count(per_token)?,
        Argument::count(usize::from(router.scores == Scores::Sigmoid))?,
        Argument::count(count)?,
        Argument::count(groups)?,
        Argument::count(best)?,
        Argument::count(usize::from(router.normalize.is_some()))?,
        Argument::Number(router.normalize.unwrap_or(0.0)),
        Argument::Number(router.added),
        Argument::Number(router.factor),
    ];
    let blocks = rows.div_ceil(WARPS);
    let launch = Launch { file: &EXPERTS, kernel: "choose_experts", rows: blocks, parts: 1, threads: THREADS };
    // SAFETY: there is a score for each expert of each row, as many numbers of the others as were just counted, and room for
    // `per_token` experts and weights of each row. `mixture::is_served` says that the kernel knows so many.
    unsafe { launch.run(device(scores)?, &arguments) }
}

/// Lists rows by the experts that were chosen.
pub(in super::super) fn list_rows(chosen: &Chosen) -> Result<()> {
    let experts = chosen.list(List::Experts)?;
    let on = device(&experts)?;
    let [of_rows, counts] = [list(chosen, List::Experts)?, list(chosen, List::Counts)?];
    let picks = Argument::count(chosen.places())?;
    let launch = Launch { file: &EXPERTS, kernel: "list_rows", rows: chosen.experts, parts: 1, threads: LISTING };
    let arguments = [
        of_rows,
        counts,
        list(chosen, List::Rows)?,
        list(chosen, List::Places)?,
        list(chosen, List::Tiles)?,
        picks,
        Argument::count(chosen.per_token)?,
        Argument::count(chosen.tile_rows)?,
        Argument::count(chosen.tiles)?,
    ];
    // SAFETY: there are so many choices of experts that there are, a count for each expert and a place for each choice, and room
    // for as many tiles as there can be. `mixture::is_served` says that the kernel knows so many experts.
    unsafe { launch.run(on, &arguments) }
}

/// The addresses of matrices that are all alike, of so many experts, and of their biases, of which there are none or one for
/// each. One matrix alone stands for that of any expert.
pub(in super::super) fn table(
    matrices: &[&Tensor],
    biases: &[&Tensor],
    experts: usize,
    sent: &mut SentAddresses,
) -> Result<Table> {
    let Some(first) = matrices.first() else { bail!("a mixture without experts") };
    let (outputs, inputs) = first.dims2()?;
    let mut on_device = |tensors: &[&Tensor]| {
        let addresses = tensors.iter().map(|tensor| Ok(address(tensor)?.cast_signed()));
        let mut addresses = addresses.collect::<Result<Vec<i64>>>()?;
        addresses.resize(experts, addresses[0]);
        sent.on(first.device(), addresses)
    };
    let alike = |matrix: &&Tensor| matrix.dims() == first.dims() && matrix.dtype() == first.dtype();
    let fits = |bias: &&Tensor| bias.dims() == [outputs] && bias.dtype() == DType::F32;
    let are_whole = matrices.iter().chain(biases).all(|tensor| tensor.is_contiguous());
    let all = matrices.iter().all(alike) && biases.iter().all(fits) && are_whole;
    let counts_fit = [1, experts].contains(&matrices.len()) && [0, experts].contains(&biases.len());
    if !all || !counts_fit {
        bail!("experts that are not alike");
    }
    let biases = if biases.is_empty() { None } else { Some(on_device(biases)?) };
    Ok(Table { matrices: on_device(matrices)?, biases, dtype: first.dtype(), outputs, inputs })
}

/// What all experts, or `only` one, make of their rows: `outputs` numbers for each place of the list by expert. The input has a
/// row for each place, or one for each row of the step where places are `gathered`.
pub(in super::super) fn multiply_experts(
    input: &Tensor,
    (table, only): (&Table, Option<usize>),
    chosen: &Chosen,
    gathered: bool,
    out: &Tensor,
) -> Result<()> {
    let (from, rows, inputs) = rows_of(input)?;
    let (to, out_rows, outputs) = sums_of(out)?;
    let wanted = if gathered { chosen.rows } else { chosen.places() };
    let fits = (rows, out_rows, inputs, outputs) == (wanted, chosen.places(), table.inputs, table.outputs);
    if !fits || input.dtype() != table.dtype || table.matrices.dims1()? != chosen.experts {
        bail!("{rows} rows of {inputs} times {} matrices to {out_rows} rows of {outputs}", chosen.experts);
    }
    let arguments = [
        Argument::Address(from),
        Argument::Address(address(&table.matrices)?),
        Argument::Address(table.biases.as_ref().map_or(Ok(0), address)?),
        list(chosen, List::Tiles)?,
        if gathered { list(chosen, List::Rows)? } else { Argument::Address(0) },
        Argument::Address(to),
        Argument::count(inputs)?,
        Argument::count(outputs)?,
        only.map_or(Ok(Argument::Count(u32::MAX)), Argument::count)?,
    ];
    let (kernel, of_warp) = multiplication(table.dtype, chosen.tile_rows)?;
    let parts = outputs.div_ceil(WARPS * of_warp);
    let launch = Launch { file: &EXPERTS, kernel, rows: chosen.tiles, parts, threads: THREADS };
    // SAFETY: the list names rows of the input, tiles name places of the list and experts, whose matrices and biases have this
    // shape and live as long as the model; `out` has a row for each place.
    unsafe { launch.run(device(input)?, &arguments) }
}

/// Adds to each row what its experts gave, times their weights and the factor.
pub(in super::super) fn add_experts(given: &Tensor, chosen: &Chosen, factor: f32, sums: &Tensor) -> Result<()> {
    let (from, places, width) = sums_of(given)?;
    let (to, rows, columns) = sums_of(sums)?;
    if (places, rows, columns) != (chosen.places(), chosen.rows, width) {
        bail!("{places} rows of {width} to {rows} of {columns}");
    }
    let arguments = [
        Argument::Address(from),
        list(chosen, List::Experts)?,
        list(chosen, List::Weights)?,
        list(chosen, List::Places)?,
        Argument::Address(to),
        Argument::count(width)?,
        Argument::count(chosen.per_token)?,
        Argument::Number(factor),
    ];
    let launch = Launch { file: &EXPERTS, kernel: "add_experts", rows, parts: 1, threads: LISTING };
    // SAFETY: each choice has a place, which is a row of `given`; rows of both are as wide.
    unsafe { launch.run(device(given)?, &arguments) }
}
