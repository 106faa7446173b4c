//! FusedInferAttentionScoreV4 in the way that serves: queries of all sequences one after the other (TND), keys and values in a
//! paged cache, no mask or the right-down causal one (sparse mode 3).

use super::Executor;
use super::arguments::{Arguments, Role, contiguous, not_offered, ranked, required, shaped, typed};
use super::matmul::dot;
use crate::fail::{Fail, mistake};
use crate::task::{Access, Id};
use crate::tensor::Tensor;
use ropeteam_acl_sys::code::*;
use ropeteam_acl_sys::types::*;
use std::sync::Arc;

/// Side of the mask that the causal modes ask for.
const MASK_SIDE: usize = 2048;
/// Workspace that an attention asks for, and per query row and head.
const WORKSPACE: u64 = 1 << 20;
const WORKSPACE_PER_ROW: u64 = 1 << 10;

/// What the operator is asked for.
pub struct Attention {
    /// Query.
    pub query: Id,
    /// List with the key cache.
    pub key: Id,
    /// List with the value cache.
    pub value: Id,
    /// Mask or null.
    pub mask: Id,
    /// Array: end of each sequence's rows in the query.
    pub query_ends: Id,
    /// Array: tokens of each sequence in the cache.
    pub kv_lens: Id,
    /// Blocks of each sequence.
    pub block_table: Id,
    /// All arguments that only other ways of the operator take; null here.
    pub others: Vec<Id>,
    /// Numbers that only other ways take; 0 here.
    pub modes: Vec<i64>,
    /// Query heads.
    pub heads: i64,
    /// Key and value heads.
    pub kv_heads: i64,
    /// Factor on the scores.
    pub scale: f64,
    /// "TND".
    pub layout: String,
    /// 0 or 3.
    pub sparse_mode: i64,
    /// Tokens of a block.
    pub block_size: i64,
    /// Result.
    pub out: Id,
}

/// The numbers of a checked attention.
#[derive(Clone)]
struct Shape {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    block_size: usize,
    scale: f32,
    causal: bool,
    /// Per sequence: rows of the query and tokens in the cache.
    sequences: Vec<(std::ops::Range<usize>, usize)>,
}

/// `aclnnFusedInferAttentionScoreV4`: query and out `[t, heads, dim]`, caches `[blocks, block_size, kv_heads * dim]`, block table
/// `[sequences, blocks of the longest]`.
pub fn attention(mut arguments: Arguments<'_>, asked: Attention) -> Result<Executor, Fail> {
    arguments.not_on_310p()?;
    if asked.layout != "TND" || asked.block_table == 0 || ![0, 3].contains(&asked.sparse_mode) {
        return Err(not_offered(
            "attention but TND with a block table and sparse mode 0 or 3",
        ));
    }
    if asked.others.iter().any(|id| *id != 0) || asked.modes.iter().any(|mode| *mode != 0) {
        return Err(not_offered(
            "attention with quantisation, prefixes, rope or log-sum-exp",
        ));
    }
    let ends = arguments.numbers(asked.query_ends, "actualSeqLengths")?;
    let lens = arguments.numbers(asked.kv_lens, "actualSeqLengthsKv")?;
    let query = arguments.tensor(asked.query, "query", Role::In)?;
    let key = arguments.only_of(asked.key, "key", Role::In)?;
    let value = arguments.only_of(asked.value, "value", Role::In)?;
    let table = arguments.tensor(asked.block_table, "blockTable", Role::In)?;
    let out = arguments.tensor(asked.out, "attentionOut", Role::Out)?;
    let causal = asked.sparse_mode == 3;
    if causal {
        let mask = arguments.tensor(asked.mask, "attenMask", Role::In)?;
        check_mask(&mask)?;
    } else if asked.mask != 0 {
        return Err(not_offered("a mask of the caller's own"));
    }
    typed(&query, "query", &[ACL_FLOAT16, ACL_BF16])?;
    typed(&table, "blockTable", &[ACL_INT32])?;
    for (cache, what) in [(&key, "key"), (&value, "value"), (&out, "attentionOut")] {
        typed(cache, what, &[query.data_type])?;
        contiguous(cache, what)?;
    }
    contiguous(&query, "query")?;
    shaped(&out, "attentionOut", &query.shape)?;
    let shape = check_shape(&asked, &query, &key, (ends, lens))?;
    shaped(&value, "value", &key.shape)?;
    check_table(&table, &shape)?;
    let workspace = WORKSPACE + WORKSPACE_PER_ROW * (query.shape[0] * shape.heads) as u64;
    let (bytes, flops) = work(&query, &shape);
    let compute =
        move |access: &mut Access<'_>, tensors: &[Tensor]| attend(access, tensors, &shape);
    let executor = arguments.executor(workspace, Arc::new(compute));
    let mut executor = executor.moving(bytes).computing(flops);
    executor.holds_host_numbers = true;
    Ok(executor)
}

/// Bytes and arithmetic of an attention: queries and results, and of the cache what the sequences have.
fn work(query: &Tensor, shape: &Shape) -> (usize, usize) {
    let sequences = shape.sequences.iter();
    let tokens: usize = sequences.clone().map(|(_, len)| len).sum();
    let pairs: usize = sequences.map(|(rows, len)| rows.len() * len).sum();
    let cache = 2 * tokens * shape.kv_heads * shape.head_dim * query.element_bytes();
    (
        2 * query.bytes() + cache,
        4 * pairs * shape.heads * shape.head_dim,
    )
}

fn check_mask(mask: &Tensor) -> Result<(), Fail> {
    typed(mask, "attenMask", &[ACL_BOOL, ACL_INT8, ACL_UINT8])?;
    let right =
        mask.shape.ends_with(&[MASK_SIDE, MASK_SIDE]) && mask.elements() == MASK_SIDE * MASK_SIDE;
    required(right, ACLNN_ERR_PARAM_INVALID, || {
        format!(
            "attenMask is {:?}; sparse mode 3 takes one of 2048 x 2048",
            mask.shape
        )
    })
}

fn check_shape(
    asked: &Attention,
    query: &Tensor,
    key: &Tensor,
    (ends, lens): (Vec<i64>, Vec<i64>),
) -> Result<Shape, Fail> {
    let tiling = |holds: bool, text: String| required(holds, ACLNN_ERR_INNER_TILING_ERROR, || text);
    let [rows, heads, head_dim] = ranked(query, "query")?;
    let [_, block_size, width] = ranked(key, "key")?;
    let kv_heads = if asked.kv_heads == 0 {
        asked.heads
    } else {
        asked.kv_heads
    };
    let kv_heads = usize::try_from(kv_heads).unwrap_or(0);
    tiling(
        asked.heads == heads as i64,
        format!("numHeads {} of {heads}", asked.heads),
    )?;
    tiling(
        kv_heads > 0 && heads.is_multiple_of(kv_heads) && heads / kv_heads <= 64,
        format!("{heads} heads over {kv_heads}"),
    )?;
    tiling(
        head_dim.is_multiple_of(16) && head_dim <= 512,
        format!("heads of {head_dim}; multiples of 16 up to 512"),
    )?;
    tiling(
        width == kv_heads * head_dim && width <= 65535,
        format!("cache rows of {width} for {kv_heads} heads of {head_dim}"),
    )?;
    tiling(
        asked.block_size == block_size as i64,
        format!("blockSize {}; the cache has {block_size}", asked.block_size),
    )?;
    tiling(
        ends.len() == lens.len() && !ends.is_empty(),
        format!("{} query ends, {} lengths", ends.len(), lens.len()),
    )?;
    let starts = std::iter::once(0).chain(ends.iter().copied());
    let ascend = starts.clone().zip(&ends).all(|(start, end)| start <= *end);
    tiling(
        ascend && ends.last() == Some(&(rows as i64)),
        format!("query ends {ends:?} must ascend to {rows}"),
    )?;
    let mut sequences = Vec::new();
    for ((start, end), len) in starts.zip(&ends).zip(&lens) {
        let longer = *len >= end - start && *len >= 0;
        tiling(
            longer,
            format!("{} query rows over {len} tokens", end - start),
        )?;
        sequences.push((start as usize..*end as usize, *len as usize));
    }
    let single = sequences.iter().all(|(rows, _)| rows.len() <= 1);
    let legal = match single {
        true => block_size.is_multiple_of(16) && block_size <= 512,
        false => block_size.is_multiple_of(128) && block_size <= 512,
    };
    tiling(legal, format!("blocks of {block_size} tokens"))?;
    Ok(Shape {
        heads,
        kv_heads,
        head_dim,
        block_size,
        scale: asked.scale as f32,
        causal: asked.sparse_mode == 3,
        sequences,
    })
}

fn check_table(table: &Tensor, shape: &Shape) -> Result<(), Fail> {
    let [rows, columns] = ranked(table, "blockTable")?;
    let longest = shape
        .sequences
        .iter()
        .map(|(_, len)| *len)
        .max()
        .unwrap_or(0);
    let fits = rows == shape.sequences.len() && columns >= longest.div_ceil(shape.block_size);
    required(fits, ACLNN_ERR_INNER_TILING_ERROR, || {
        let count = shape.sequences.len();
        format!("blockTable [{rows}, {columns}] for {count} sequences of up to {longest} tokens")
    })
}

fn attend(access: &mut Access<'_>, tensors: &[Tensor], shape: &Shape) -> Result<(), Fail> {
    let [query, key, value, table, out, mask @ ..] = tensors else {
        return Ok(());
    };
    if let [mask] = mask {
        check_mask_values(access, mask)?;
    }
    let queries = query.read(access)?;
    let tables = table.read_integers(access)?;
    let columns = table.shape[1];
    let mut result = vec![0f32; queries.len()];
    for (sequence, (rows, len)) in shape.sequences.iter().enumerate() {
        let blocks = &tables[sequence * columns..][..columns];
        check_owners(
            access,
            key,
            sequence,
            &blocks[..len.div_ceil(shape.block_size)],
        );
        let keys = gather(access, key, (blocks, *len), shape)?;
        let values = gather(access, value, (blocks, *len), shape)?;
        for row in rows.clone() {
            let seen = match shape.causal {
                true => len + 1 + row - rows.end,
                false => *len,
            };
            let width = shape.heads * shape.head_dim;
            let place = row * width..(row + 1) * width;
            let tokens = (&keys[..], &values[..], seen);
            attend_row(&queries[place.clone()], tokens, shape, &mut result[place]);
        }
    }
    out.write(access, &result)
}

/// No sequence reads what belongs to another.
fn check_owners(access: &mut Access<'_>, cache: &Tensor, sequence: usize, blocks: &[i64]) {
    for block in blocks {
        let place = (cache.address, usize::try_from(*block).unwrap_or(usize::MAX));
        if let Some(text) = access.owners.misread(&access.readers, sequence, place) {
            access.violations.report(access.at.call, &text);
        }
    }
}

/// The corners that tell an upper triangle of ones from its mistakes.
fn check_mask_values(access: &mut Access<'_>, mask: &Tensor) -> Result<(), Fail> {
    let last = MASK_SIDE - 1;
    for (row, column, expected) in [
        (0, 0, 0),
        (0, 1, 1),
        (0, last, 1),
        (last, 0, 0),
        (last, last, 0),
    ] {
        let at = mask.offset + row * MASK_SIDE + column;
        let found = access.read(mask.part(at, 1))?[0];
        if found != expected {
            let text = format!("attenMask[{row}][{column}] is {found}, not {expected}");
            return Err(mistake(ACL_ERROR_RT_AICORE_EXCEPTION, text));
        }
    }
    Ok(())
}

/// The first tokens of a sequence (its blocks, how many tokens), in order, `[len, kv_heads * head_dim]`.
fn gather(
    access: &mut Access<'_>,
    cache: &Tensor,
    (blocks, len): (&[i64], usize),
    shape: &Shape,
) -> Result<Vec<f32>, Fail> {
    let width = shape.kv_heads * shape.head_dim;
    let mut values = Vec::with_capacity(len * width);
    for (index, block) in blocks[..len.div_ceil(shape.block_size)].iter().enumerate() {
        let known = usize::try_from(*block)
            .ok()
            .filter(|block| *block < cache.shape[0]);
        let Some(block) = known else {
            let text = format!("block {block} of a cache of {}", cache.shape[0]);
            return Err(mistake(ACL_ERROR_RT_AICORE_EXCEPTION, text));
        };
        let tokens = (len - index * shape.block_size).min(shape.block_size);
        let from = cache.offset + block * shape.block_size * width;
        let bytes = access.read(cache.part(from, tokens * width))?;
        crate::tensor::decode(cache.data_type, bytes, &mut values);
    }
    Ok(values)
}

/// All heads of one query row over the first `seen` keys and values.
fn attend_row(
    query: &[f32],
    (keys, values, seen): (&[f32], &[f32], usize),
    shape: &Shape,
    out: &mut [f32],
) {
    let (dim, width) = (shape.head_dim, shape.kv_heads * shape.head_dim);
    for head in 0..shape.heads {
        let column = head / (shape.heads / shape.kv_heads) * dim;
        let query = &query[head * dim..][..dim];
        let scores: Vec<f32> = (0..seen)
            .map(|t| dot(query, &keys[t * width + column..][..dim]) * shape.scale)
            .collect();
        let highest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weights: Vec<f32> = scores.iter().map(|score| (score - highest).exp()).collect();
        let total: f32 = weights.iter().sum();
        let out = &mut out[head * dim..][..dim];
        for (t, weight) in weights.iter().enumerate() {
            let value = &values[t * width + column..][..dim];
            for (out, value) in out.iter_mut().zip(value) {
                *out += weight / total * value;
            }
        }
    }
}
