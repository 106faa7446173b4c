//! A device under test with the few calls that most checks are made of.

use super::numbers::{Arithmetic, Random, bytes};
use crate::{Act, Device, Dtype, Precision, TensorView, Weight};

/// A device, and numbers that are the same for each device the suite compares.
pub(super) struct Session {
    pub device: Box<dyn Device>,
    pub arithmetic: Arithmetic,
    pub random: Random,
}

/// A matrix of f32 as a checkpoint would hold it.
pub(super) fn view(bytes: &[u8], rows: usize, cols: usize) -> TensorView<'_> {
    TensorView {
        dtype: Dtype::F32,
        shape: [rows, cols],
        bytes,
        row_order: None,
        scales: None,
    }
}

impl Session {
    pub(super) fn new(device: Box<dyn Device>, precision: Precision, seed: u64) -> Self {
        let arithmetic = Arithmetic {
            precision,
            activations: device.info().activations,
        };
        Self {
            device,
            arithmetic,
            random: Random(seed),
        }
    }

    pub(super) fn alloc(&mut self, rows: usize, cols: usize) -> Act {
        self.device.alloc(rows, cols).expect("alloc")
    }

    /// An activation holding `values` as nearly as embeddings of this precision can bring them there, and what it holds.
    ///
    /// The trait uploads weights, not activations, so the values come as the sum of some tables.
    pub(super) fn filled(&mut self, values: &[f32], cols: usize) -> (Act, Vec<f32>) {
        let tables = match self.arithmetic.precision {
            Precision::F32 | Precision::Bf16 | Precision::Stored => 2,
            Precision::Int8 => 3,
            Precision::Int4 => 5,
        };
        let rows = values.len() / cols;
        let (act, rest) = (self.alloc(rows, cols), self.alloc(rows, cols));
        self.embed_all(values, cols, act);
        for _ in 1..tables {
            let held = self.read(act, rows);
            let missing: Vec<f32> = values
                .iter()
                .zip(&held)
                .map(|(wanted, held)| wanted - held)
                .collect();
            self.embed_all(&missing, cols, rest);
            self.device.add(act, rest, rows).expect("add");
        }
        let held = self.read(act, rows);
        (act, held)
    }

    /// Rows of `values` as an embedding table of this precision gives them back.
    pub(super) fn embedded(&mut self, values: &[f32], cols: usize) -> Vec<f32> {
        let rows = values.len() / cols;
        let act = self.alloc(rows, cols);
        self.embed_all(values, cols, act);
        self.read(act, rows)
    }

    /// All rows of a table `[rows, cols]` on the device.
    pub(super) fn rows_of(&mut self, table: Weight, rows: usize, cols: usize) -> Vec<f32> {
        let act = self.alloc(rows, cols);
        let ids: Vec<u32> = (0..rows as u32).collect();
        self.device.embed(table, &ids, act).expect("embed");
        self.read(act, rows)
    }

    pub(super) fn embed_all(&mut self, values: &[f32], cols: usize, act: Act) {
        let rows = values.len() / cols;
        let bytes = bytes(values);
        let table = self
            .device
            .load_embedding(&view(&bytes, rows, cols), false)
            .expect("load_embedding");
        let ids: Vec<u32> = (0..rows as u32).collect();
        self.device.embed(table, &ids, act).expect("embed");
    }

    pub(super) fn vector(&mut self, values: &[f32]) -> Weight {
        let bytes = bytes(values);
        self.device
            .load_vector(&view(&bytes, values.len(), 1))
            .expect("load_vector")
    }

    pub(super) fn read(&mut self, act: Act, rows: usize) -> Vec<f32> {
        let mut out = Vec::new();
        self.device
            .read_rows(act, 0, rows, &mut out)
            .expect("read_rows");
        out
    }
}
