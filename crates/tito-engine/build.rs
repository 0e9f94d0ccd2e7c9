//! Tells the code whether it is optimised. With the feature `cuda`, compiles the engine's own kernels to PTX, which the
//! driver translates for its GPU.

use std::{env, path::PathBuf, process::Command};

const FOLDER: &str = "src/engine/native/cuda/kernels";
/// Names of files, and whether products and sums may be fused there.
const KERNELS: [(&str, bool); 2] = [("rows", true), ("summary", false)];
/// Where `CUDA_COMPUTE_CAP` says nothing: PTX for an earlier GPU runs on every later one.
const EARLIEST: &str = "80";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(unoptimised)");
    if env::var_os("OPT_LEVEL").is_some_and(|level| level == "0") {
        println!("cargo::rustc-cfg=unoptimised");
    }
    for (name, _) in KERNELS {
        println!("cargo::rerun-if-changed={FOLDER}/{name}.cu");
    }
    println!("cargo::rerun-if-env-changed=CUDA_HOME");
    println!("cargo::rerun-if-env-changed=CUDA_COMPUTE_CAP");
    if env::var_os("CARGO_FEATURE_CUDA").is_none() {
        return;
    }
    let in_home = env::var_os("CUDA_HOME").map(|home| PathBuf::from(home).join("bin/nvcc"));
    let nvcc = in_home.filter(|path| path.exists()).unwrap_or_else(|| "nvcc".into());
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names a folder"));
    let asked = env::var_os("CUDA_COMPUTE_CAP").and_then(|asked| asked.into_string().ok());
    let asked = asked.unwrap_or_else(|| EARLIEST.to_owned());
    let capability = asked.trim_end_matches(|c: char| !c.is_ascii_digit());
    for (name, fused) in KERNELS {
        let source = format!("{FOLDER}/{name}.cu");
        let outcome = Command::new(&nvcc)
            .args(["--ptx", "-O3", "--std=c++17", &format!("-arch=compute_{capability}"), &format!("-fmad={fused}")])
            .args([&source, "-o"])
            .arg(out.join(name).with_extension("ptx"))
            .status();
        match outcome {
            Ok(status) if status.success() => {}
            Ok(status) => panic!("{} could not compile {source}: {status}", nvcc.display()),
            Err(error) => {
                panic!("cannot run {}: {error}; docs/gpu.md says what a build for CUDA needs", nvcc.display())
            }
        }
    }
}
