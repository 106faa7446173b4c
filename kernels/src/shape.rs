//! How many rows and panels a register tile takes at most.

use crate::int_tile::{ByGroups, Int4Panels, Int6Panels, Int8BlockPanels, Int8Panels};
use crate::product::{ByElement, Product};
use crate::simd::{Int8, Kernel};
use crate::tile::{Bf16Element, SingleElement};
use crate::{Format, Isa};

/// Shape of the largest register tile of a format.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// Rows, and panels.
    pub rows: usize,
    pub panels: usize,
    /// Lines of a panel that are not parted.
    pub unit_lines: usize,
}

/// That of a format on an instruction set. Panels that a tile reads together lie in a strip.
pub(crate) fn shape_of(isa: Isa, format: Format) -> Shape {
    isa.dispatch(ShapeOf(format))
}

struct ShapeOf(Format);

impl Kernel for ShapeOf {
    type Output = Shape;
    #[inline(always)]
    fn run<S: Int8>(self, _: S) -> Shape {
        match self.0 {
            Format::F32 => shape::<S, ByElement<SingleElement>>(),
            Format::Bf16 => shape::<S, ByElement<Bf16Element>>(),
            Format::Int8 => shape::<S, ByGroups<Int8Panels>>(),
            Format::Int8Blocks => shape::<S, ByGroups<Int8BlockPanels>>(),
            Format::Int6 => shape::<S, ByGroups<Int6Panels>>(),
            Format::Int4 => shape::<S, ByGroups<Int4Panels>>(),
        }
    }
}

const fn shape<S: Int8, M: Product<S>>() -> Shape {
    Shape {
        rows: M::TILE.0,
        panels: M::TILE.1,
        unit_lines: M::UNIT_LINES,
    }
}
