//! Memory that a server that sleeps gives back, on a GPU: on the emulated one, too.

use candle_core::DType;

use super::{
    super::{DeviceBackend, Gpu},
    processor,
    speculation::{config, engine},
    test_device,
};
use crate::engine::{
    Engine, Memory,
    native::{
        Drafting,
        model::{Room, tests::made_up::made_up_to_add},
        tests::{bits, collected, params, request},
    },
};

/// What the cache takes: much more than what other tests take and give back meanwhile.
const CACHE_MIB: usize = 256;

/// Other processes have what was given back at once, and not only once somebody has waited for the device.
#[test]
fn what_is_discarded_is_free_for_other_processes() {
    if !test_device().is_cuda() {
        eprintln!("SKIPPED: only a GPU keeps what was freed; tests/emulated-gpu/run has an emulated one");
        return;
    }
    let device = Gpu::open(0).unwrap().device();
    let free = || device.as_cuda_device().unwrap().cuda_stream().context().mem_get_info().unwrap().0 >> 20;
    let backend = DeviceBackend::new(device.clone(), DType::BF16, processor(1));
    let mut model = made_up_to_add(&config(), backend, Room { blocks: CACHE_MIB << 6, slots: 0 });
    let before = free();
    model.discard_cache();
    assert!(free() >= before + CACHE_MIB / 2, "{} MiB are free, and {before} were before", free());
    model.restore_cache().unwrap();
    assert!(free() <= before + CACHE_MIB / 2);
}

/// To give memory back is the first that the engine's thread does.
#[tokio::test]
async fn a_server_that_sleeps_before_its_first_request_wakes_up() {
    if !test_device().is_cuda() {
        eprintln!("SKIPPED: only a GPU is known thread by thread; tests/emulated-gpu/run has an emulated one");
        return;
    }
    let asked = || request(&[5, 6, 7], params(8));
    let expected = collected(engine(Drafting::Off, DType::BF16).generate(asked())).await;
    let sleeping = engine(Drafting::Off, DType::BF16);
    let control = sleeping.control().unwrap();
    control.hold().await.unwrap();
    control.discard(Memory::KvCache).await.unwrap();
    control.restore(Memory::KvCache).await.unwrap();
    control.release().await.unwrap();
    assert_eq!(bits(&collected(sleeping.generate(asked())).await), bits(&expected));
}
