//! Which instructions the kernels use: found out at run time, once, and then a value that stands for the permission.

#[cfg(target_arch = "aarch64")]
use crate::simd::neon;
use crate::simd::{Kernel, portable};
#[cfg(target_arch = "x86_64")]
use crate::simd::{avx2, avx512};

/// An instruction set that this machine has. Values exist only for those.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Isa(Level);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Portable,
    #[cfg(target_arch = "aarch64")]
    Neon,
    #[cfg(target_arch = "aarch64")]
    NeonDot,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
    #[cfg(target_arch = "x86_64")]
    Avx512Bf16,
}

impl Isa {
    /// The best instruction set of this machine.
    pub fn best() -> Self {
        let mut all = Self::all();
        all.pop().unwrap_or(Isa(Level::Portable))
    }

    /// All that this machine has, slowest first.
    pub fn all() -> Vec<Self> {
        let mut all = vec![Isa(Level::Portable)];
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c");
            let avx512 = avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512dq");
            all.extend(avx2.then_some(Isa(Level::Avx2)));
            all.extend(avx512.then_some(Isa(Level::Avx512)));
            let vnni = avx512 && is_x86_feature_detected!("avx512vnni");
            all.extend(vnni.then_some(Isa(Level::Avx512Vnni)));
            let bf16 = vnni && is_x86_feature_detected!("avx512bf16");
            all.extend(bf16.then_some(Isa(Level::Avx512Bf16)));
        }
        #[cfg(target_arch = "aarch64")]
        {
            let neon = std::arch::is_aarch64_feature_detected!("neon");
            all.extend(neon.then_some(Isa(Level::Neon)));
            let dot = neon && std::arch::is_aarch64_feature_detected!("dotprod");
            all.extend(dot.then_some(Isa(Level::NeonDot)));
        }
        all
    }

    /// Its name, for people.
    pub fn name(self) -> &'static str {
        match self.0 {
            Level::Portable => "portable",
            #[cfg(target_arch = "aarch64")]
            Level::Neon => "NEON",
            #[cfg(target_arch = "aarch64")]
            Level::NeonDot => "NEON with dot products",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "AVX-512",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Vnni => "AVX-512 VNNI",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Bf16 => "AVX-512 BF16",
        }
    }

    /// Runs `kernel`, compiled for this instruction set.
    #[inline]
    pub(crate) fn dispatch<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            Level::Portable => kernel.run(portable::Portable),
            // SAFETY: a value of this level is made only in `all`, after the machine was found to have NEON.
            #[cfg(target_arch = "aarch64")]
            Level::Neon => unsafe { neon::run(kernel) },
            // SAFETY: likewise, NEON with dot products.
            #[cfg(target_arch = "aarch64")]
            Level::NeonDot => unsafe { neon::run_dot(kernel) },
            // SAFETY: a value of this level is made only in `all`, after the machine was found to have AVX2, FMA and F16C.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { avx2::run(kernel) },
            // SAFETY: likewise, AVX-512 F, BW, VL and DQ.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { avx512::run(kernel) },
            // SAFETY: likewise, the same and AVX-512 VNNI.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Vnni => unsafe { avx512::run_vnni(kernel) },
            // SAFETY: likewise, the same and AVX-512 VNNI and BF16.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Bf16 => unsafe { avx512::run_bf16(kernel) },
        }
    }
}
