//! SIMD kernels on packed weights, one operator per file, each with its plain reference.

/// Element format of stored weights. Block formats are those of GGUF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, non_camel_case_types)]
pub enum Dtype {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q8_0,
    Q4_K,
    Q6_K,
}
