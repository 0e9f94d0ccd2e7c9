//! Tells the code whether it is optimised. With the feature `cuda`, compiles the engine's own kernels to PTX, which the
//! driver translates for its GPU.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

const FOLDER: &str = "src/engine/native/cuda/kernels";
/// Names of files, and whether products and sums may be fused there.
const KERNELS: [(&str, bool); 4] = [("rows", true), ("summary", false), ("experts", false), ("segments", false)];
/// What they include.
const SHARED: [&str; 6] =
    ["warp.cuh", "block.cuh", "heads.cuh", "attention.cuh", "tile_attention.cuh", "prompt_attention.cuh"];
/// The file that is compiled once for each size of heads, without fusing.
const ATTENTION: &str = "paged_attention";
/// These sizes, `HEAD_DIMS` in `paged_attention.rs`.
const HEAD_DIMS: [usize; 7] = [64, 80, 96, 112, 128, 192, 256];
/// Where `CUDA_COMPUTE_CAP` says nothing: PTX for an earlier GPU runs on every later one.
const EARLIEST: &str = "80";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(unoptimised)");
    if env::var_os("OPT_LEVEL").is_some_and(|level| level == "0") {
        println!("cargo::rustc-cfg=unoptimised");
    }
    for name in SHARED {
        println!("cargo::rerun-if-changed={FOLDER}/{name}");
    }
    for name in KERNELS.iter().map(|(name, _)| *name).chain([ATTENTION]) {
        println!("cargo::rerun-if-changed={FOLDER}/{name}.cu");
    }
    println!("cargo::rerun-if-env-changed=CUDA_HOME");
    println!("cargo::rerun-if-env-changed=CUDA_COMPUTE_CAP");
    if env::var_os("CARGO_FEATURE_CUDA").is_none() {
        return;
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names a folder"));
    for (name, fused) in KERNELS {
        compile(name, &[format!("-fmad={fused}")], &out.join(name));
    }
    for head_dim in HEAD_DIMS {
        let options = ["-fmad=false".to_owned(), format!("-DHEAD_DIM={head_dim}")];
        compile(ATTENTION, &options, &out.join(format!("{ATTENTION}_{head_dim}")));
    }
}

/// Makes PTX of a file of kernels.
fn compile(name: &str, options: &[String], out: &Path) {
    let in_home = env::var_os("CUDA_HOME").map(|home| PathBuf::from(home).join("bin/nvcc"));
    let nvcc = in_home.filter(|path| path.exists()).unwrap_or_else(|| "nvcc".into());
    let asked = env::var_os("CUDA_COMPUTE_CAP").and_then(|asked| asked.into_string().ok());
    let asked = asked.unwrap_or_else(|| EARLIEST.to_owned());
    let capability = asked.trim_end_matches(|c: char| !c.is_ascii_digit());
    let source = format!("{FOLDER}/{name}.cu");
    let outcome = Command::new(&nvcc)
        .args(["--ptx", "-O3", "--std=c++17", &format!("-arch=compute_{capability}")])
        .args(options)
        .args([&source, "-o"])
        .arg(out.with_extension("ptx"))
        .status();
    match outcome {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{} could not compile {source}: {status}", nvcc.display()),
        Err(error) => panic!("cannot run {}: {error}; docs/gpu.md says what a build for CUDA needs", nvcc.display()),
    }
}
