//! With the feature `cuda`, compiles the engine's own kernels to PTX, which the driver translates for its GPU.

use std::{env, path::PathBuf, process::Command};

const KERNELS: &str = "src/engine/native/cuda/kernels/rows.cu";
/// Where CUDA_COMPUTE_CAP says nothing: PTX for an earlier GPU runs on every later one.
const EARLIEST: &str = "80";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={KERNELS}");
    println!("cargo:rerun-if-env-changed=CUDA_HOME");
    println!("cargo:rerun-if-env-changed=CUDA_COMPUTE_CAP");
    if env::var_os("CARGO_FEATURE_CUDA").is_none() {
        return;
    }
    let in_home = env::var_os("CUDA_HOME").map(|home| PathBuf::from(home).join("bin/nvcc"));
    let nvcc = in_home.filter(|path| path.exists()).unwrap_or_else(|| "nvcc".into());
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names a folder")).join("rows.ptx");
    let asked = env::var("CUDA_COMPUTE_CAP").unwrap_or_else(|_| EARLIEST.to_owned());
    let capability = asked.trim_end_matches(|c: char| !c.is_ascii_digit());
    let outcome = Command::new(&nvcc)
        .args(["--ptx", "-O3", "--std=c++17", &format!("-arch=compute_{capability}"), KERNELS, "-o"])
        .arg(&out)
        .status();
    match outcome {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{} could not compile {KERNELS}: {status}", nvcc.display()),
        Err(error) => panic!("cannot run {}: {error}; docs/gpu.md says what a build for CUDA needs", nvcc.display()),
    }
}
