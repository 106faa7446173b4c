//! Matrix products in every format, at numbers of rows from one (bound by memory) to many (bound by arithmetic).

use super::clock::median;
use super::roofline::{Reading, Work};
use super::table::Case;
use super::{Show, out_of_memory};
use crate::start_error::StartError;
use ropeteam_kernels::limits::Arithmetic;
use ropeteam_kernels::{
    Dtype, Format, Machine, MatrixId, MatrixStore, PreparedRows, RowForm, Source, linear,
};

/// Formats that a model's weights are kept in.
const FORMATS: [(Format, &str); 6] = [
    (Format::F32, "f32"),
    (Format::Bf16, "bf16"),
    (Format::Int8, "int8"),
    (Format::Int8Blocks, "int8 in blocks"),
    (Format::Int6, "int6"),
    (Format::Int4, "int4"),
];

/// Outputs and inputs: QKV, gate and up, and the head of a model with 135 million parameters, gate and up, and down of one with half
/// a billion, QKV of one with seven billion.
const SHAPES: [[usize; 2]; 6] = [
    [960, 576],
    [3072, 576],
    [49152, 576],
    [9728, 896],
    [896, 4864],
    [4608, 3584],
];

const ROWS: [usize; 8] = [1, 4, 8, 12, 16, 64, 256, 1024];

/// Bytes of copies of a matrix. They are read in turn, so that none of them comes from a cache.
const COPIES: u64 = 96 << 20;
/// Rows up to which one measurement goes through all copies: else the pauses between short ones would count. With more rows it takes
/// fewer copies, about the same time.
const FEW_ROWS: usize = 16;

/// Measures all of them.
///
/// # Errors
/// When there is no memory.
pub fn measure(
    machine: &mut Machine,
    reading: &Reading,
    show: &mut Show<'_>,
) -> Result<(), StartError> {
    for (format, name) in FORMATS {
        for shape in SHAPES {
            let Some(stored) = stored(format, shape) else {
                continue;
            };
            let product = Product::pack(machine, format, shape, &stored)?;
            let bytes_per_s = reading.rate(machine);
            for rows in ROWS {
                show(Case {
                    kernel: format!("product, {name}"),
                    shape: format!("{shape:?}"),
                    rows,
                    seconds: product.seconds(machine, rows),
                    work: product.work(rows),
                    bytes_per_s,
                });
            }
        }
    }
    Ok(())
}

/// Weights that the format is packed from: bf16, but for a format that only holds stored blocks. `None`: the inputs are no whole blocks.
fn stored(format: Format, [outputs, inputs]: [usize; 2]) -> Option<(Dtype, Vec<u8>)> {
    if format == Format::Int6 {
        let bytes = Dtype::Q6_K.row_bytes(inputs)?;
        return Some((Dtype::Q6_K, vec![0x11; bytes * outputs]));
    }
    // Numbers between -1 and 1 without a pattern that matters.
    let number = |i: u32| i.wrapping_mul(2_654_435_761) as i32 as f32 / i32::MAX as f32;
    let bits = |i: u32| ((number(i).to_bits() >> 16) as u16).to_le_bytes();
    let bytes = (0..(outputs * inputs) as u32).flat_map(bits).collect();
    Some((Dtype::BF16, bytes))
}

struct Product {
    format: Format,
    shape: [usize; 2],
    store: MatrixStore,
    copies: Vec<MatrixId>,
}

impl Product {
    fn pack(
        machine: &mut Machine,
        format: Format,
        shape: [usize; 2],
        (dtype, bytes): &(Dtype, Vec<u8>),
    ) -> Result<Self, StartError> {
        let [outputs, inputs] = shape;
        let mut store = MatrixStore::default();
        let source = Source {
            dtype: *dtype,
            rows: outputs,
            bytes,
            row_order: None,
            scales: None,
        };
        let count = COPIES.div_ceil(MatrixStore::bytes(format, outputs, inputs));
        let mut pack = |_| store.pack(machine, format, inputs, &[source], &[]);
        let copies: Result<_, _> = (0..count).map(&mut pack).collect();
        Ok(Product {
            format,
            shape,
            copies: copies.map_err(out_of_memory)?,
            store,
        })
    }

    /// Time of one product.
    fn seconds(&self, machine: &mut Machine, rows: usize) -> f64 {
        let [outputs, inputs] = self.shape;
        let (x, mut out) = (vec![0.5; rows * inputs], vec![0.0; rows * outputs]);
        let mut prepared = PreparedRows::default();
        let count = (self.copies.len() * FEW_ROWS).div_ceil(rows.max(FEW_ROWS));
        let mut copies = self.copies.iter().cycle();
        let time = median(|| {
            for copy in copies.by_ref().take(count) {
                linear(machine, &mut prepared, &x, self.store.get(*copy), &mut out);
            }
        });
        time / count as f64
    }

    fn work(&self, rows: usize) -> Work {
        let [outputs, inputs] = self.shape;
        Work {
            bytes: MatrixStore::bytes(self.format, outputs, inputs) as f64,
            operations: 2.0 * (rows * outputs * inputs) as f64,
            arithmetic: match self.format.row_form() {
                RowForm::F32 => Arithmetic::F32,
                RowForm::Bf16 => Arithmetic::Bf16,
                RowForm::Int8 => Arithmetic::Int8,
            },
        }
    }
}
